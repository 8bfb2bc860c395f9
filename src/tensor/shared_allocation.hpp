#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include <shared_tensor/context.hpp>

#include "shm/segment_pool.hpp"

namespace at {
class Tensor;
}

namespace shared_tensor::tensor {

/// Where functions have tensors born that are handed over without a copy. From the first of these on, libtorch's CPU
/// allocator asks whether the thread is in a scope. Thread safety: all methods from any thread; a scope is the
/// thread's.
class SharedAllocation final : public detail::CallMemory {
public:
    /// `pool` must outlive this; the tensors may outlive both.
    explicit SharedAllocation(shm::SegmentPool& pool);

    at::Tensor empty(std::string_view principal, std::span<const std::int64_t> sizes, int scalar_type) const override;
    at::Tensor empty_writable(std::string_view principal, std::span<const std::int64_t> sizes,
                              int scalar_type) const override;
    void enter(std::string_view principal) const override;
    void leave() const noexcept override;

private:
    shm::SegmentPool* pool_;
};

/// Where a tensor is to be born.
struct Birthplace {
    shm::SegmentPool& pool;
    std::string_view principal;
    shm::Sharing sharing = shm::Sharing::read_only;
    std::function<void()> gone = {};  ///< called when its memory here is let go; must not throw
};
/// Into `made`: an uninitialised contiguous tensor in a segment of the pool, in ordinary memory when it has no room.
/// Throws c10::Error for sizes that are none, or too big.
void make_tensor_in(const Birthplace& place, std::span<const std::int64_t> sizes, int scalar_type, at::Tensor& made);
void make_ordinary_tensor(std::span<const std::int64_t> sizes, int scalar_type, at::Tensor& made);

/// Whether clients may write to the tensor's memory: it was made by empty_writable().
bool is_writable_by_clients(const at::Tensor& tensor);

}  // namespace shared_tensor::tensor
