#pragma once

#include <memory>
#include <string>

#include "models/model.hpp"

namespace shared_tensor::models {

/// An AOTInductor package (torch._inductor.aoti_compile_and_package, a .pt2 file), shared as NAME.forward. It holds
/// native code, which runs as this process.
std::shared_ptr<Model> load_compiled_model(const std::string& name, const std::string& path,
                                           const LoadOptions& options);

}  // namespace shared_tensor::models
