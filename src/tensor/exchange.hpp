#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "codec/value.hpp"
#include "tensor/descriptor.hpp"
#include "tensor/medium.hpp"
#include "tensor/way.hpp"
#include "util/compression.hpp"

namespace shared_tensor::tensor {

/// No way that the reader takes can carry a tensor: -32006 with the reason for each.
class TransportNotPossible : public std::runtime_error {
public:
    using Reasons = std::vector<std::pair<Way, std::string>>;
    explicit TransportNotPossible(Reasons reasons);
    const Reasons& reasons() const { return reasons_; }
    /// {"shm": "why not", ...}
    Json reasons_json() const;

private:
    Reasons reasons_;
};

/// A tensor has more elements than may be written as `data`, and its reader takes no transport that can carry them.
class TooManyElements : public std::length_error {
public:
    TooManyElements(std::uint64_t elements, std::uint64_t limit);
    std::uint64_t elements() const { return elements_; }
    std::uint64_t limit() const { return limit_; }

private:
    std::uint64_t elements_, limit_;
};

/// Bytes below which a tensor that would have to be copied into shared memory is sent in another way.
constexpr std::uint64_t kShmMinBytes = 32 << 10;

/// What the reader of a message can take.
struct ExportPolicy {
    std::vector<Way> accept;                     ///< in order of wish; empty: said nothing (curl), data or base64
    std::vector<Way> require;                    ///< not empty: one of these or TransportNotPossible
    std::uint64_t data_max_elements = 64;        ///< above it another accepted way is taken if there is one
    std::uint64_t base64_max_bytes = 64 << 10;   ///< likewise
    std::uint64_t shm_min_bytes = kShmMinBytes;  ///< likewise below it, for what would have to be copied there
    std::string codings{};                       ///< content codings that the reader knows, as it said
    Compression compression{};  ///< the one of them that tensors in the body take, if it makes them smaller
    /// Never more elements as `data`, whatever else its reader takes: they take long, and much memory, to write.
    std::uint64_t most_data_elements = std::numeric_limits<std::uint64_t>::max();
};

/// How the tensors of ONE message cross: those of a request in, those of its reply out.
///
/// Ways out: the first accepted one that carries the tensor and whose bound (data_max_elements, base64_max_bytes) it
/// keeps; beyond all bounds the most compact accepted one. Nothing is sent in a way that was not accepted.
/// Tensors in the body are compressed one by one, where the reader knows how to undo it and it makes them smaller.
/// Thread safety: one thread at a time, except wrap(), which any thread may call at any time.
class TensorExchange final : public codec::TensorPort {
public:
    explicit TensorExchange(Incoming incoming = {}, ExportPolicy policy = {}, DescriptorLimits limits = {},
                            const Media& media = inline_media())
        : incoming_(std::move(incoming)), policy_(std::move(policy)), limits_(limits), media_(&media) {
        body_.set_compression(policy_.compression);
    }

    codec::TensorPointer import(const Json& descriptor) override;
    codec::TensorPointer import(const Descriptor& descriptor);
    codec::TensorPointer wrap(const TensorRef& tensor) override;
    TensorRef in_host_memory(const TensorRef& tensor) override;
    /// Throws TransportNotPossible, TooManyElements, std::bad_alloc, and what `out` throws.
    void describe(const codec::TensorPointer& tensor, json_rpc::LongText& out) override;
    /// The same for those who want to look at it.
    Json describe(const codec::TensorPointer& tensor);

    std::vector<std::weak_ptr<codec::LentMemory>> take_lent() override { return std::exchange(lent_, {}); }
    void take_over(codec::LentMemory& memory) override;
    /// Bytes that were copied later for tensors which came in shared memory.
    void count_copied(std::uint64_t bytes) { counts_[static_cast<std::size_t>(Way::shm)].copied += bytes; }

    /// For the tensors described from now on: the items of a batch may differ.
    void set_policy(ExportPolicy policy) {
        policy_ = std::move(policy);
        body_.set_compression(policy_.compression);
    }
    /// Device memory that comes in from now on is read where the sender has it (see Incoming).
    void set_borrow(bool borrow) { incoming_.borrow = borrow; }
    /// For the tensors of both directions from now on; `media` must outlive this.
    void set_media(const Media& media) { media_ = &media; }

    /// A tensor that was described lies in memory that the other side maps.
    bool holds_memory() const { return !held_.empty(); }
    /// The other side has read the message that carries the tensors described here.
    void answered() noexcept {
        for (const auto& held : held_)
            held->answered();
    }

    /// What is to be written after the head of the frame (codec::frame_head): empty when no tensor went by body, and
    /// then the message can go as plain JSON.
    const OutgoingBody& body() const { return body_; }

    /// For the header Shared-Tensor-Transport: the tensors of both directions by way, and the bytes copied for them:
    /// "body;tensors=2;copied=0", several ways with ", " between. Empty when no tensor crossed.
    std::string summary() const;

    struct Count {
        std::uint64_t tensors = 0, copied = 0;
    };
    /// Of both directions, in the order of kWays.
    const std::array<Count, kWays.size()>& counts() const { return counts_; }
    /// Of tensors whose bytes were compressed.
    CompressionCounts compression() const;

private:
    void count(Way way, std::uint64_t copied);
    const Medium& choose(const codec::TensorPointer& tensor, TransportNotPossible::Reasons& reasons) const;
    bool within_bounds(Way way, const codec::TensorPointer& tensor) const;

    Incoming incoming_;
    ExportPolicy policy_;
    DescriptorLimits limits_;
    const Media* media_;
    OutgoingBody body_;
    std::vector<std::shared_ptr<Hold>> held_;  ///< by the tensors that were described
    std::vector<std::weak_ptr<codec::LentMemory>> lent_;
    std::array<Count, kWays.size()> counts_{};
    std::uint64_t compressed_in_ = 0, uncompressed_in_ = 0;
};

}  // namespace shared_tensor::tensor
