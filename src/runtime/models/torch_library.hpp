#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <shared_tensor/detail/framework.hpp>

#include "runtime/models/model.hpp"

namespace shared_tensor::models {

/// Interface of libshared_tensor_torch. Its one C function, shared_tensor_torch_models, returns it.
struct TorchModels {
    std::uint32_t plugin_abi;   ///< of its build: it uses the same interfaces as plugins
    const char* version;        ///< shared_tensor version of its build: Model and LoadOptions change with it
    const char* torch_version;  ///< libtorch version of its build
    const detail::Framework* framework;
    std::shared_ptr<Model> (*load)(const std::string& name, const std::string& path, const LoadOptions& options,
                                   const SessionIsOpen& is_open);
};

/// Loads libtorch and libshared_tensor_torch for the rest of the process; a process can have one libtorch only. If
/// `folder` is given, libtorch is searched only there; else by the library's RUNPATH, then in torch_folders(). The
/// first call blocks for about a second. Throws std::runtime_error that lists the folders tried.
/// Thread safety: from any thread.
const TorchModels& load_torch(const std::string& folder);

/// The libtorch loaded in this process; its path is empty if there is none.
struct Libtorch {
    std::string path{};
    std::string version{};  ///< "2.11.0"; empty if unknown
};
Libtorch loaded_libtorch();

/// Folders that may contain a libtorch (as lib/libtorch_cpu.so): of Python environments and of the system.
std::vector<std::string> torch_folders();

}  // namespace shared_tensor::models
