#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "codec/lent_memory.hpp"
#include "codec/value.hpp"
#include "tensor/descriptor.hpp"
#include "tensor/dtype.hpp"
#include "tensor/way.hpp"
#include "util/body_part.hpp"
#include "util/compression.hpp"

namespace shared_tensor::tensor {

/// What a message brought beside its JSON.
struct Incoming {
    std::span<const std::byte> body;
    std::shared_ptr<const void> owner;  ///< keeps `body` alive; tensors that view it hold on to it
    bool borrow = false;                ///< device memory is read where the sender has it, not copied first
    /// Asked before memory is taken for tensors that came compressed: what counts them as long as it lives, null where
    /// there may be no more of them. Empty: they are not counted.
    std::function<std::shared_ptr<const void>(std::uint64_t bytes)> hold{};
};

/// What goes out beside the JSON: the tensors, each at a multiple of 64 bytes from the first.
class OutgoingBody {
public:
    /// Where the bytes will stand.
    Region add(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

    /// One after another, the gaps between tensors included.
    const std::vector<BodyPart>& parts() const { return parts_; }
    std::uint64_t size() const { return size_; }

    /// For the tensors that are added from now on.
    void set_compression(Compression how) { compression_ = how; }
    Compression compression() const { return compression_; }
    struct Compressed {
        std::uint64_t compressed = 0, uncompressed = 0;  ///< bytes
    };
    void note_compressed(std::uint64_t compressed, std::uint64_t uncompressed) {
        compressed_.compressed += compressed;
        compressed_.uncompressed += uncompressed;
    }
    const Compressed& compressed() const { return compressed_; }

private:
    std::vector<BodyPart> parts_;
    Compression compression_{};
    Compressed compressed_{};
    std::uint64_t size_ = 0;
};

/// Yes, or why not, in words for people.
struct Viability {
    std::string reason;  ///< empty: yes
    explicit operator bool() const { return reason.empty(); }
};

/// A tensor that came in, and what it cost.
struct Imported {
    codec::TensorPointer tensor;
    std::uint64_t copied = 0;                           ///< bytes
    std::uint64_t compressed = 0;                       ///< bytes that it came in, where they were compressed
    std::shared_ptr<codec::LentMemory> lent = nullptr;  ///< in which it lies, where its sender can still write to it
};

/// What keeps a tensor's bytes while a message that names them is on its way. Destroyed without answered(): nobody
/// knows whether the other side has seen the message, or will.
class Hold {
public:
    virtual ~Hold() = default;
    /// The other side has read the message to its end.
    virtual void answered() noexcept = 0;
};

/// The way's own member of a descriptor, and what it cost.
struct Exported {
    std::string content;                   ///< JSON text
    std::uint64_t copied = 0;              ///< bytes
    std::string lease = {};                ///< empty: none
    Shape strides = {};                    ///< empty: contiguous
    std::shared_ptr<Hold> held = nullptr;  ///< to be kept until the message was answered, or, of an answer, written
    std::string device = "cpu";            ///< where its reader finds the bytes
    bool is_word = false;                  ///< `content` is a string without its quotes, which needs no escape
    bool is_printed = false;               ///< the content is as long as the tensor: Medium::print() writes it
};

/// A tensor cannot go that way just now, with the reason for people: another way may carry it.
class CannotLend : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// One way to hand tensors over. Being built in, being usable here (viable) and carrying a certain tensor are three
/// questions. Immutable: one object serves all messages and threads.
class Medium {
public:
    virtual ~Medium() = default;
    virtual Way way() const = 0;
    virtual Viability viable() const = 0;
    /// Of a viable medium: whether it carries tensors of that type.
    virtual Viability carries(DType dtype) const = 0;
    /// Whether it carries this one, of a type that it carries.
    virtual Viability fits(const codec::TensorHandle& tensor) const {
        (void)tensor;
        return {};
    }
    /// The tensor lies where this way hands it over from: nothing would be copied.
    virtual bool holds(const codec::TensorHandle& tensor) const {
        (void)tensor;
        return false;
    }

    /// `descriptor` is one of this way. Throws InvalidValue before memory is touched that it does not rightly name.
    virtual Imported import(const Descriptor& descriptor, const Incoming& incoming) const = 0;
    /// `tensor` is of a type that it carries. Throws CannotLend.
    virtual Exported export_to(const codec::TensorPointer& tensor, OutgoingBody& body) const = 0;
    /// Appends the content of a tensor whose export says is_printed, a piece at a time. Throws what `out` throws.
    virtual void print(const codec::TensorPointer& tensor, json_rpc::LongText& out) const {
        static_cast<void>(tensor);
        static_cast<void>(out);
    }
};

/// The media of a process, looked up by way.
class Media {
public:
    explicit Media(std::vector<const Medium*> media) : media_(std::move(media)) {}
    /// nullptr when that way is not built in.
    const Medium* find(Way way) const;
    /// Whether the way can be used here at all.
    Viability viable(Way way) const;
    /// Those that can be used, as they stand in error messages: "data, base64, body".
    std::string viable_names() const;

private:
    std::vector<const Medium*> media_;  // live as long as the process
};

/// data, base64 and body: those that need nothing but the message.
const Media& inline_media();

const Medium& data_medium();
const Medium& base64_medium();
const Medium& body_medium();

}  // namespace shared_tensor::tensor
