#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes/compression.hpp"
#include "base/memory/memory_block.hpp"
#include "protocol/codec/value.hpp"
#include "tensor/descriptor.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

/// The binary part of a received message, and the settings for the import of its tensors.
struct Incoming {
    std::span<const std::byte> body;
    std::shared_ptr<const void> owner;  ///< keeps `body` alive; tensors that view `body` keep it
    bool borrow = false;                ///< true: tensors on devices are used in the sender's memory, without a copy
    /// Reserves `bytes` of the sender's budget while the result lives; returns null if the budget is exhausted. Called
    /// before memory is allocated to decompress a tensor. Empty: no budget.
    std::function<std::shared_ptr<const void>(std::uint64_t bytes)> hold{};
};

/// The binary part of a message to send: tensors at offsets that are multiples of 64 bytes.
class OutgoingBody {
public:
    /// Adds bytes that `owner` keeps alive until they are written. Returns their place in the body.
    Region add(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

    /// The parts of the body in order, with the padding between tensors.
    const std::vector<BodyPart>& parts() const { return parts_; }
    std::uint64_t size() const { return size_; }

    /// Sets the compression for the tensors that are added from now on.
    void set_compression(Compression how) { compression_ = how; }
    Compression compression() const { return compression_; }
    void note_compressed(std::uint64_t compressed, std::uint64_t uncompressed) {
        compressed_.compressed_out += compressed;
        compressed_.uncompressed_out += uncompressed;
    }
    const CompressionCounts& compressed() const { return compressed_; }

private:
    std::vector<BodyPart> parts_;
    Compression compression_{};
    CompressionCounts compressed_{};
    std::uint64_t size_ = 0;
};

/// Whether something is possible; if not, the reason as text for error messages.
struct Viability {
    std::string reason;  ///< empty: it is possible
    explicit operator bool() const { return reason.empty(); }
};

/// An imported tensor, and the bytes that its import cost.
struct Imported {
    codec::TensorPointer tensor;
    std::uint64_t copied = 0;                           ///< bytes
    std::uint64_t compressed = 0;                       ///< its compressed size in bytes; 0: it was not compressed
    std::shared_ptr<codec::LentMemory> lent = nullptr;  ///< the sender's memory that it views, if the sender can write
};

/// Keeps memory that a message names while the message is in flight. If it is destroyed without a call of answered(),
/// it is unknown whether the peer has read the message or will read it.
class Pin {
public:
    virtual ~Pin() = default;
    /// Called when the peer has read the whole message.
    virtual void answered() noexcept = 0;
};

/// Memory that the peer may use.
struct Lending {
    std::string lease{};          ///< empty: none; `held` keeps the memory
    std::shared_ptr<Pin> held{};  ///< keep it until a request is answered, or until a reply is written
};

/// The transport's member of a tensor's descriptor, and the bytes that the export cost.
struct Exported {
    std::string content;                                       ///< JSON text
    std::uint64_t copied = 0;                                  ///< bytes
    Lending lent = {};                                         ///< set if the bytes stay in memory of this process
    Shape strides = {};                                        ///< empty: contiguous
    std::string device = "cpu";                                ///< the device of the bytes, for the reader
    std::function<void(json_rpc::LongText&)> print = nullptr;  ///< appends the content, instead of `content`
};

/// A transport cannot carry a tensor at the moment; another transport may. what() gives the reason.
class CannotLend : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// One transport for tensors. Three questions are separate: whether it is built in (Transports::find), whether it can
/// be used here (viable), and whether it carries a certain tensor (fits). Immutable: one object serves all messages and
/// threads.
class Transport {
public:
    virtual ~Transport() = default;
    virtual TransportKind kind() const = 0;
    virtual Viability viable() const { return {}; }
    /// Whether it carries this tensor. Call it only if viable().
    virtual Viability fits(const codec::TensorHandle& tensor) const {
        (void)tensor;
        return {};
    }
    /// Whether the tensor's memory can be handed over as it is, without a copy.
    virtual bool holds(const codec::TensorHandle& tensor) const {
        (void)tensor;
        return false;
    }

    /// Imports the tensor of a descriptor with this transport. Throws InvalidValue before it accesses memory that the
    /// descriptor may not name.
    virtual Imported import(const Descriptor& descriptor, const Incoming& incoming) const = 0;
    /// Exports a tensor that this transport carries. Throws CannotLend.
    virtual Exported export_to(const codec::TensorPointer& tensor, OutgoingBody& body) const = 0;
};

/// A list of transports, looked up by kind: data, base64 and body, which need only the message, and others, which must
/// outlive the list.
class Transports {
public:
    using Reasons = std::map<TransportKind, std::string>;
    /// `absent`: why a transport is not in the list; the default is that it is not built in.
    explicit Transports(std::vector<const Transport*> others = {}, Reasons absent = {});
    /// Returns nullptr for a transport that is not in the list.
    const Transport* find(TransportKind kind) const;
    /// Returns this list with one more transport.
    Transports with(const Transport& one) const;
    /// Whether the transport can be used here.
    Viability viable(TransportKind kind) const;
    /// The transports that can be used, for error messages: "data, base64, body".
    std::string viable_names() const;

private:
    std::vector<const Transport*> transports_;
    Reasons absent_;
};

/// Only data, base64 and body.
const Transports& inline_transports();

/// Transports in order of preference, and the unknown names of a list.
struct TransportList {
    std::vector<TransportKind> transports;
    std::vector<std::string> unknown;
};
/// Parses the value of Shared-Tensor-Accept or Shared-Tensor-Require: "shm, body". Drops repetitions.
TransportList parse_transports(std::string_view list);

}  // namespace shared_tensor::tensor
