#pragma once

#include <string>

#include "codec/value.hpp"

namespace shared_tensor::cli {

/// A JSON Schema of rpc.discover as a person writes types: "integer", "tensor?", "list of string".
std::string type_text(const codec::Json& schema);

/// "scale(x: tensor, factor: number = 2.0) -> tensor"
std::string signature(const codec::Json& method);

/// Signature and documentation of each function of the document, or of the one named. Throws UsageError when that one
/// is not there.
std::string describe_functions(const codec::Json& document, const std::string& only);

/// The document without the daemon's own methods.
codec::Json functions_only(codec::Json document);

/// A name a line.
std::string function_names(const codec::Json& document);

}  // namespace shared_tensor::cli
