#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <string>

#include <shared_tensor/value.hpp>

namespace shared_tensor::models {

/// The unsupported part of a TorchScript type; empty if all of it is supported: Tensor, int, float, bool, str, number,
/// None, and Optional, List, Tuple and Dict[str, ...] of them.
std::string rejection(const c10::Type& type);

/// Throws InvalidValue. Here and below, rejection(type) must be empty.
c10::IValue read(const ValueReader& reader, const c10::Type& type);
void write(ValueWriter writer, const c10::IValue& value);
void write_schema(ValueWriter writer, const c10::Type& type);

}  // namespace shared_tensor::models
