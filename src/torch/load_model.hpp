#pragma once

#include <memory>
#include <string>

#include "runtime/models/model.hpp"

namespace shared_tensor::models {

/// Implements LoadModel for TorchScript files (torch.jit.save), in evaluation mode, and for compiled models (.pt2).
std::shared_ptr<Model> load_model(const std::string& name, const std::string& path, const LoadOptions& options = {},
                                  const SessionIsOpen& is_open = {});

/// Loads an AOTInductor package (a .pt2 file by torch._inductor.aoti_compile_and_package); it is shared as
/// NAME.forward. It holds native code, which runs in this process.
std::shared_ptr<Model> load_compiled_model(const std::string& name, const std::string& path,
                                           const LoadOptions& options);

/// Describes the current exception as shared functions do. A script's exception is described by its Python type and
/// message, without the trace through the model's source. Call it only inside a catch clause.
CallFailure current_script_failure() noexcept;

}  // namespace shared_tensor::models
