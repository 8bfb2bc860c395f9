#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <shared_tensor/detail/framework.hpp>

#include "models/model.hpp"

namespace shared_tensor::models {

/// What libshared_tensor_torch gives: one C function, shared_tensor_torch_models, returns it.
struct TorchModels {
    std::uint32_t plugin_abi;   ///< of its build: it uses the same interfaces as plugins do
    const char* version;        ///< of shared_tensor, of its build: Model and LoadOptions change with it
    const char* torch_version;  ///< of its build
    const detail::Framework* framework;
    std::shared_ptr<Model> (*load)(const std::string& name, const std::string& path, const LoadOptions& options,
                                   const SessionIsOpen& is_open);
};

/// Loads libtorch and libshared_tensor_torch, for the rest of the process; a process holds one libtorch. `folder`: the
/// only place where libtorch is looked for; empty: where the library itself says, and then in torch_folders(). Blocks
/// for a second or so, the first time. Throws std::runtime_error that says where it looked.
/// Thread safety: from any thread.
const TorchModels& load_torch(const std::string& folder);

/// The libtorch that is in this process; an empty path: none is.
struct Libtorch {
    std::string path{};
    std::string version{};  ///< "2.11.0"; empty: it does not say
};
Libtorch loaded_libtorch();

/// Folders in which a libtorch may lie (lib/libtorch_cpu.so in it): those of Python environments and of the system.
std::vector<std::string> torch_folders();

}  // namespace shared_tensor::models
