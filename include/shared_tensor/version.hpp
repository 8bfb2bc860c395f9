#pragma once

#define SHARED_TENSOR_VERSION "0.2.0"

/// Changes whenever plugins that were built against older headers can no longer be loaded.
#define SHARED_TENSOR_PLUGIN_ABI 9
