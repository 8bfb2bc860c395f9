#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes/compression.hpp"
#include "protocol/codec/value.hpp"
#include "tensor/descriptor.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::tensor {

/// No transport that the reader accepts can carry a tensor. Answered as -32006, with the reason for each transport.
class TransportNotPossible : public std::runtime_error {
public:
    using Reasons = std::vector<std::pair<TransportKind, std::string>>;
    explicit TransportNotPossible(Reasons reasons);
    const Reasons& reasons() const { return reasons_; }
    /// {"shm": "why not", ...}
    Json reasons_json() const;

private:
    Reasons reasons_;
};

/// A tensor has more elements than may be written as `data`, and its reader accepts no other transport that can carry
/// it.
class TooManyElements : public std::length_error {
public:
    TooManyElements(std::uint64_t elements, std::uint64_t limit);
    std::uint64_t elements() const { return elements_; }
    std::uint64_t limit() const { return limit_; }

private:
    std::uint64_t elements_, limit_;
};

/// A tensor with fewer bytes that is not in shared memory is sent by another accepted transport, if there is one.
constexpr std::uint64_t kShmMinBytes = 32 << 10;

/// Which transports the reader of a message accepts, and how the transport of a tensor is chosen among them.
struct ExportPolicy {
    std::vector<TransportKind> accept;           ///< in order of preference; empty (curl): data, base64
    std::vector<TransportKind> require;          ///< not empty: one of these, or TransportNotPossible
    std::uint64_t data_max_elements = 64;        ///< above this `data` is used only if no other transport can be
    std::uint64_t base64_max_bytes = 64 << 10;   ///< above this base64 is used only if no other transport can be
    std::uint64_t shm_min_bytes = kShmMinBytes;  ///< like kShmMinBytes
    std::string codings{};                       ///< content codings that the reader accepts: its header's text
    Compression compression{};  ///< coding for tensors in the body, used for those that it makes smaller
    /// Hard limit of `data`, even if the reader accepts nothing else: lists take long, and much memory, to write.
    std::uint64_t most_data_elements = std::numeric_limits<std::uint64_t>::max();
};

/// Imports the tensors of ONE request and describes the tensors of its reply.
///
/// A tensor goes out by the first accepted transport that can carry it within its limit (data_max_elements,
/// base64_max_bytes, shm_min_bytes); if all limits are exceeded, by the most compact accepted transport. A transport
/// that the reader does not accept is never used. Tensors in the body are compressed one by one, if the reader accepts
/// the coding and the tensor gets smaller.
/// Thread safety: one thread at a time, except wrap(), which any thread may call at any time.
class TensorTransfer final : public codec::TensorPort {
public:
    explicit TensorTransfer(Incoming incoming = {}, ExportPolicy policy = {}, DescriptorLimits limits = {},
                            const Transports& transports = inline_transports())
        : incoming_(std::move(incoming)), policy_(std::move(policy)), limits_(limits), transports_(&transports) {
        body_.set_compression(policy_.compression);
    }

    codec::TensorPointer import(const Json& descriptor) override;
    codec::TensorPointer import(const Descriptor& descriptor);
    codec::TensorPointer wrap(const TensorRef& tensor) override;
    TensorRef in_host_memory(const TensorRef& tensor) override;
    /// Appends the tensor's descriptor to `out`. Throws TransportNotPossible, TooManyElements, std::bad_alloc, and what
    /// `out` throws.
    void describe(const codec::TensorPointer& tensor, json_rpc::LongText& out) override;
    /// Like describe() above, for callers that inspect the descriptor.
    Json describe(const codec::TensorPointer& tensor);

    std::vector<std::weak_ptr<codec::LentMemory>> take_lent() override { return std::exchange(lent_, {}); }
    void take_over(codec::LentMemory& memory) override;
    std::shared_ptr<const void> hold(std::uint64_t bytes) override;
    /// Counts bytes that were copied after the import of tensors in shared memory.
    void count_copied(std::uint64_t bytes) { counts_[static_cast<std::size_t>(TransportKind::shm)].copied += bytes; }

    /// Sets the policy for the tensors that are described from now on: the items of a batch may have different ones.
    void set_policy(ExportPolicy policy) {
        policy_ = std::move(policy);
        body_.set_compression(policy_.compression);
    }
    /// Sets Incoming::borrow for the tensors that are imported from now on.
    void set_borrow(bool borrow) { incoming_.borrow = borrow; }
    /// Sets the media for all tensors from now on, in both directions. `media` must outlive this object.
    void set_transports(const Transports& transports) { transports_ = &transports; }

    /// Whether a described tensor is in memory that the other side maps.
    bool holds_memory() const { return !held_.empty(); }
    /// To be called when the other side has read the message with the tensors described here.
    void answered() noexcept {
        for (const auto& held : held_)
            held->answered();
    }

    /// The bytes to write after the head of the frame (codec::frame_head). Empty if no tensor went by body: then the
    /// message can be sent as plain JSON.
    const OutgoingBody& body() const { return body_; }

    /// Returns the value of the header Shared-Tensor-Transport: for each transport the number of tensors in both
    /// directions and the bytes copied for them, separated by ", ": "body;tensors=2;copied=0". Empty without tensors.
    std::string summary() const;

    struct Count {
        std::uint64_t tensors = 0, bytes = 0, copied = 0;  ///< bytes: of the tensors, uncompressed
    };
    /// Counts of both directions, in the order of kTransportKinds.
    using Counts = std::array<Count, kTransportKinds.size()>;
    const Counts& counts() const { return counts_; }
    /// Bytes of the tensors that were compressed, before and after.
    CompressionCounts compression() const;

private:
    void count(TransportKind transport, std::uint64_t bytes, std::uint64_t copied);
    const Transport& choose(const codec::TensorPointer& tensor, TransportNotPossible::Reasons& reasons) const;
    bool within_bounds(TransportKind transport, const codec::TensorPointer& tensor) const;

    Incoming incoming_;
    ExportPolicy policy_;
    DescriptorLimits limits_;
    const Transports* transports_;
    OutgoingBody body_;
    std::vector<std::shared_ptr<Pin>> held_;  ///< from the exports of described tensors
    std::vector<std::weak_ptr<codec::LentMemory>> lent_;
    Counts counts_{};
    std::uint64_t compressed_in_ = 0, uncompressed_in_ = 0;
};

}  // namespace shared_tensor::tensor
