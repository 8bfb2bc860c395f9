#pragma once

#include <cstdint>
#include <string_view>

#include <shared_tensor/context.hpp>

#include "local/segments/segment_pool.hpp"

namespace shared_tensor::tensor {

/// Allocates shared memory in which functions make tensors that are handed over without a copy.
/// Thread safety: all methods from any thread.
class SharedAllocation final : public detail::CallMemory {
public:
    /// `pool` must outlive this object. The allocated memory may outlive both.
    explicit SharedAllocation(local::SegmentPool& pool) : pool_(&pool) {}

    Block take(std::string_view principal, std::size_t bytes, Writers writers) const override;

private:
    local::SegmentPool* pool_;
};

/// Whether clients may write to the memory at `address`: a function allocated it with Writers::clients_too.
bool is_writable_by_clients(const void* address);

}  // namespace shared_tensor::tensor
