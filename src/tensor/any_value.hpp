#pragma once

#include <shared_tensor/value.hpp>

#include "protocol/codec/value.hpp"

namespace shared_tensor::tensor {

/// A value of any kind, as it was received, for code that passes it on. Tensors are views of the received memory.
struct AnyValue {
    codec::Value value;
};

/// Reads any value, whose objects the call uses with this access.
AnyValue read_any(const ValueReader& reader, Access access);

}  // namespace shared_tensor::tensor

template <>
struct shared_tensor::Codec<shared_tensor::tensor::AnyValue> {
    using AnyValue = tensor::AnyValue;
    static AnyValue read(const ValueReader& reader) { return tensor::read_any(reader, Access::concurrent); }
    static void write(ValueWriter writer, const AnyValue& value);
    static void schema(ValueWriter writer) { writer.boolean(true); }
};
