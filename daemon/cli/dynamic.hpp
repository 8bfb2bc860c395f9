#pragma once

#include <optional>

#include <shared_tensor/value.hpp>

#include "protocol/codec/value.hpp"
#include "tensor/files/tensor_set.hpp"

namespace shared_tensor::cli {

/// A value of any shape; tensors may be anywhere inside.
struct Dynamic {
    codec::Value value;
};

/// Reads a value in the JSON form of the protocol: {"$tensor": {"data": [1, 2]}} is a tensor. Throws InvalidValue.
Dynamic from_json(const codec::Json& json);

/// Writes a value in the JSON form of the protocol, for programs, with tensors as data or base64.
codec::Json to_json(const Dynamic& value);

Dynamic from_tensor(codec::TensorPointer tensor);

/// The tensor if the value is one tensor, else null.
codec::TensorPointer only_tensor(const Dynamic& value);

/// The tensors by name if the value is an object that holds only tensors; a single tensor gets the name "tensor".
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
