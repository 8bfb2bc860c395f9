#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <string>

#include <shared_tensor/value.hpp>

namespace shared_tensor::models {

/// What part of a TorchScript type can't cross, empty when all of it can: Tensor, int, float, bool, str, number, None,
/// and Optional, List, Tuple and Dict[str, ...] of them.
std::string obstacle(const c10::Type& type);

/// Throws InvalidValue. `type` has no obstacle; so below.
c10::IValue read(const ValueReader& reader, const c10::Type& type);
void write(ValueWriter writer, const c10::IValue& value);
void write_schema(ValueWriter writer, const c10::Type& type);

}  // namespace shared_tensor::models
