#pragma once

#define SHARED_TENSOR_VERSION "0.1.0"

/// Changes whenever a plugin built against older headers could not be used any more.
#define SHARED_TENSOR_PLUGIN_ABI 5
