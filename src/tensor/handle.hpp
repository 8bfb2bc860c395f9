#pragma once

#include "codec/value.hpp"
#include "shm/segment_pool.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::tensor {

/// Tensors above it have no key: a call that takes one is not cached.
inline constexpr std::uint64_t kMaxKeyBytes = std::uint64_t{1} << 20;

codec::TensorPointer make_handle(const TensorRef& tensor);

/// The same tensor, for a result that outlives its answer: it is never lent in a way in which its reader could write to
/// it.
codec::TensorPointer make_kept_handle(const codec::TensorPointer& handle);
/// Whether a handle was made so.
bool is_kept(const codec::TensorHandle& handle);

/// Where a tensor's bytes lie in shared memory besides, once they were copied there: the results that are kept (tasks,
/// cache, keys) are handed over many times. Thread-safe.
class SharedCopy {
public:
    shm::PooledSegmentPointer get() const {
        return segment_.with([](const auto& held) { return held; });
    }
    void set(shm::PooledSegmentPointer segment) {
        segment_.with([&](auto& held) { held.swap(segment); });
    }

private:
    Guarded<shm::PooledSegmentPointer> segment_;
};

/// That of a handle made here; null for others.
SharedCopy* shared_copy_of(const codec::TensorHandle& handle);

}  // namespace shared_tensor::tensor
