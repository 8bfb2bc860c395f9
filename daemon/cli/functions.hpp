#pragma once

#include <string>

#include "protocol/codec/value.hpp"

namespace shared_tensor::cli {

/// A JSON Schema of rpc.discover as a short type for people: "integer", "tensor?", "list of string".
std::string type_text(const codec::Json& schema);

/// "scale(x: tensor, factor: number = 2.0) -> tensor"
std::string signature(const codec::Json& method);

/// Signature and documentation of all functions of the document, or of the function `only`. Throws UsageError if that
/// function does not exist.
std::string describe_functions(const codec::Json& document, const std::string& only);

/// The document without the daemon's own methods.
codec::Json functions_only(codec::Json document);

/// One name per line.
std::string function_names(const codec::Json& document);

}  // namespace shared_tensor::cli
