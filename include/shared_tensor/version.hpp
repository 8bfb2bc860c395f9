#pragma once

/// MAJOR.MINOR.PATCH. CHANGELOG.md has a section for each version. Everything else that shows it reads this line.
#define SHARED_TENSOR_VERSION "0.2.0"

/// Changes whenever plugins that were built against older headers can no longer be loaded.
#define SHARED_TENSOR_PLUGIN_ABI 9
