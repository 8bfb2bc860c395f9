#pragma once

#include <cstdint>

#include "codec/lent_memory.hpp"
#include "codec/value.hpp"

namespace shared_tensor::tensor {

/// Sees to it that nothing which a call leaves behind lies in memory that a client can write to: tensors of its result
/// are copied, and what the function itself still uses of `lent` (null: nothing was lent) is taken over in place.
/// `kept`: others than the caller get the result too, or the caller gets it later. Then it does not lie in memory that
/// clients share for writing either. Returns how many bytes were copied. Throws std::bad_alloc.
std::uint64_t own_result(codec::Value& result, const codec::LentForCall* lent, bool kept);

}  // namespace shared_tensor::tensor
