#pragma once

// Describes to the server the tensor framework that a module (executable or plugin) uses.

#include <cstddef>
#include <memory>

namespace shared_tensor::detail {

struct Framework {
    const char* name;
    const char* version;  ///< the version that the module was compiled against; empty: unknown
    /// Called before calls are served: the framework may use `threads` threads for each thread that calls it.
    void (*prepare)(std::size_t threads);
    /// Turns autograd off on this thread while the result lives.
    std::shared_ptr<void> (*without_grad)();
    /// Loads the framework's libraries for GPUs. Returns null, or the reason why the framework cannot use GPUs. Takes
    /// seconds. Call it before the framework is first asked for GPUs, since the framework remembers the answer.
    const char* (*load_cuda)();
    /// Returns unused GPU memory from the framework's cache to the driver. Only after load_cuda(); may throw.
    void (*release_memory)();
};

/// This module's framework; null if it uses none. Hidden, so that the dynamic linker does not merge the variables of
/// two modules.
[[gnu::visibility("hidden")]] inline const Framework* framework = nullptr;

}  // namespace shared_tensor::detail
