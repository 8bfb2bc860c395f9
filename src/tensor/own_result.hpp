#pragma once

#include <cstdint>

#include "protocol/codec/lent_memory.hpp"
#include "protocol/codec/value.hpp"

namespace shared_tensor::tensor {

/// Makes the result of a call independent of memory that its client can write to. Tensors of the result in that memory
/// are copied. Memory of `lent` that the function still uses is taken over in place (null: the client lent nothing).
/// `kept`: other clients get the result too, or the caller gets it after the answer. Then tensors in memory that
/// clients share for writing (empty_in_writable_shared_memory) are copied too. Returns the bytes copied. Throws
/// std::bad_alloc.
std::uint64_t own_result(codec::Value& result, const codec::LentForCall* lent, bool kept);

}  // namespace shared_tensor::tensor
