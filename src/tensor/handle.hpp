#pragma once

#include "base/concurrency/guarded.hpp"
#include "local/segments/segment_pool.hpp"
#include "protocol/codec/value.hpp"

namespace shared_tensor::tensor {

/// A larger tensor has no cache key: the result of a call with such an argument is not cached.
inline constexpr std::uint64_t kMaxKeyBytes = std::uint64_t{1} << 20;

/// Throws InvalidValue for an undefined tensor.
codec::TensorPointer make_handle(const TensorRef& tensor);

/// Collects tensors in a Value, which are described later, for each reader.
class WrappingPort final : public codec::TensorPort {
public:
    codec::TensorPointer wrap(const TensorRef& tensor) override { return make_handle(tensor); }
};

/// Returns a handle of the same tensor for a result that is kept after its answer. Readers never get memory of it that
/// they could write to.
codec::TensorPointer make_kept_handle(const codec::TensorPointer& handle);
/// Whether make_kept_handle() made this handle.
bool is_kept(const codec::TensorHandle& handle);

/// The copy of a tensor in shared memory, once there is one. It saves further copies of kept results (tasks, cache,
/// idempotency keys), which are handed over many times.
using SharedCopy = Guarded<local::PooledSegmentPointer>;
/// Returns the SharedCopy of a handle from make_handle() or make_kept_handle(); null for other handles.
SharedCopy* shared_copy_of(const codec::TensorHandle& handle);

/// Makes the result of a call independent of memory that its client can write to. Tensors of the result in that memory
/// are copied. Memory of `lent` that the function still uses is taken over in place (null: the client lent nothing).
/// `kept`: other clients get the result too, or the caller gets it after the answer. Then tensors in memory that
/// clients share for writing (empty_in_writable_shared_memory) are copied too. Returns the bytes copied. Throws
/// std::bad_alloc.
std::uint64_t own_result(codec::Value& result, const codec::LentForCall* lent, bool kept);

}  // namespace shared_tensor::tensor
