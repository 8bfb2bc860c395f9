#pragma once

#include <optional>

#include <shared_tensor/value.hpp>

#include "codec/value.hpp"
#include "tensor/tensor_set.hpp"

namespace shared_tensor::cli {

/// A value of any shape, tensors anywhere inside.
struct Dynamic {
    codec::Value value;
};

/// What JSON text says in the protocol's words: {"$tensor": {"data": [1, 2]}} is a tensor. Throws InvalidValue.
Dynamic from_json(const codec::Json& json);

/// The same words with tensors as data or base64: for programs.
codec::Json to_json(const Dynamic& value);

Dynamic from_tensor(codec::TensorPointer tensor);

/// The tensor, if that is all there is; else null.
codec::TensorPointer only_tensor(const Dynamic& value);

/// The tensors by name, if it is an object of tensors and nothing else; one tensor goes by the name "tensor".
std::optional<tensor::TensorMap> tensors_of(const Dynamic& value);

}  // namespace shared_tensor::cli

namespace shared_tensor {

template <>
struct Codec<cli::Dynamic> {
    static cli::Dynamic read(const ValueReader& reader);
    static void write(ValueWriter writer, const cli::Dynamic& value);
    static void schema(ValueWriter writer) { writer.object(); }
};

}  // namespace shared_tensor
