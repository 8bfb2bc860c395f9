#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <shared_tensor/context.hpp>

#include "local/segments/segment_pool.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::tensor {

/// The process at the other end of a local channel, for tensors in shared memory. Client and server both implement it.
/// Thread safety: all methods from any thread.
class ShmPeer {
public:
    virtual ~ShmPeer() = default;
    /// Whether the peer can share memory with this process.
    virtual Viability viable() const = 0;

    /// A segment of the peer, mapped for one tensor. Writes to it stay in this process.
    struct Borrowed {
        std::byte* data = nullptr;
        std::uint64_t size = 0;
        std::shared_ptr<const void> owner;  ///< keeps the mapping; the peer is told when it is destroyed
        /// To be called at most once, after the used bytes were copied in place (LentMemory::take_over()): then the
        /// peer need not wait for the end of `owner`. Empty: tensors in this memory are never taken over.
        std::function<void()> copied = {};
    };
    /// Throws InvalidValue (path "shm.segment" or "lease") if the peer does not lend this memory, or no longer.
    virtual Borrowed borrow(const std::string& segment, const std::string& lease) = 0;

    /// Allocates shared memory for a copy of a tensor. Throws CannotLend if there is none.
    virtual local::PooledSegmentPointer take(std::uint64_t bytes) = 0;
    /// Finds the segment in which the bytes lie, of this process or of another process. Nullopt if it cannot be lent to
    /// the peer, or has other bytes there. May block.
    virtual std::optional<local::SegmentPlace> find(const void* data, std::uint64_t bytes) const = 0;

    /// Whether this side hands the same tensors over many times, so that a copy in shared memory stays with its tensor.
    virtual bool keeps_copies() const { return false; }

    /// Lets the peer map `segment` for `tensor`, of `bytes` bytes. Throws CannotLend.
    virtual Lending lend(local::SegmentUsePointer segment, std::uint64_t bytes, const codec::TensorPointer& tensor) = 0;
};

/// Makes the transport for CPU tensors in sealed shared memory of one host. A tensor that is in a segment already is
/// not copied; any other is copied once. `peer` must outlive the transport.
std::unique_ptr<Transport> make_shm_transport(ShmPeer& peer);

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
