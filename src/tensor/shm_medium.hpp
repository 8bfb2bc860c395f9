#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shm/segment_pool.hpp"
#include "tensor/medium.hpp"

namespace shared_tensor::tensor {

/// The process at the other end, as tensors in shared memory need it. Each side of a local channel has one of the
/// other side. Thread safety: all methods from any thread.
class ShmPeer {
public:
    virtual ~ShmPeer() = default;
    /// Yes, or why that process cannot share memory with us.
    virtual Viability viable() const = 0;

    /// Memory of the peer's, mapped for one tensor; writes to it stay here.
    struct Borrowed {
        std::byte* data = nullptr;
        std::uint64_t size = 0;
        std::shared_ptr<const void> owner;  ///< the peer is told when it goes
        /// Called at most once, when what is used of it was copied: the peer need not wait for `owner`. Empty: its
        /// tensors are never taken over.
        std::function<void()> copied = {};
    };
    /// Throws InvalidValue (path "shm.segment" or "lease") for what the peer has not lent to us, or not any more.
    virtual Borrowed borrow(const std::string& segment, const std::string& lease) = 0;

    /// Memory for a tensor that does not lie in shared memory yet. Throws CannotLend where there is none.
    virtual shm::PooledSegmentPointer take(std::uint64_t bytes) = 0;
    /// Where an address lies in memory that can be lent.
    virtual std::optional<shm::SegmentPool::Place> find(const void* address) const = 0;

    /// Whether tensors are handed over again and again here, so that a copy in shared memory is kept with its tensor.
    virtual bool keeps_copies() const { return false; }

    struct Lent {
        std::string lease;           ///< empty: none is needed, `held` does it
        std::shared_ptr<Hold> held;  ///< see Exported::held
    };
    /// Lets the peer map `segment` for one tensor of so many bytes, which is `tensor`. Throws CannotLend.
    virtual Lent lend(shm::PooledSegmentPointer segment, std::uint64_t bytes, const codec::TensorPointer& tensor) = 0;
};

/// CPU tensors through sealed memory of one host: no copy where the elements lie in a segment already, one otherwise.
/// Made for one peer, which must outlive it.
std::unique_ptr<Medium> make_shm_medium(ShmPeer& peer);

/// Reads the descriptor of a leased tensor in shared memory in the very form in which TensorExchange writes it, without
/// a tree of JSON, which costs most where a result is handed over without a copy. Nothing for any other text, right or
/// wrong: parse_descriptor judges it. The same rules for shape and strides hold for both.
std::optional<Descriptor> read_shm_descriptor(std::string_view text, const DescriptorLimits& limits = {});

/// In the place of the above for a message whose sender has no such peer, with the reason.
std::unique_ptr<Medium> make_absent_medium(Way way, std::string reason);

}  // namespace shared_tensor::tensor
