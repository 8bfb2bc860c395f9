#pragma once

// What a module (executable or plugin) that uses a tensor framework tells the server about it.

#include <cstddef>
#include <memory>

namespace shared_tensor::detail {

struct Framework {
    const char* name;
    const char* version;  ///< that the module was compiled against; empty: unknown
    /// Before calls are served: so many threads at most for each thread that calls the framework.
    void (*prepare)(std::size_t threads);
    /// While the result is there, this thread runs without autograd.
    std::shared_ptr<void> (*without_grad)();
    /// Loads what the framework needs for GPUs: before it is asked for the first time whether it has any, since it
    /// remembers the answer. Takes seconds. Why it cannot use them; null: it can.
    const char* (*load_cuda)();
    /// Returns memory of GPUs that the framework keeps for later tensors to the driver. After load_cuda() only; may
    /// throw.
    void (*release_memory)();
};

/// Of this module; null where it uses none. Hidden, so that the dynamic linker never merges those of two modules.
[[gnu::visibility("hidden")]] inline const Framework* framework = nullptr;

}  // namespace shared_tensor::detail
