#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/value.hpp"
#include "util/body_part.hpp"
#include "util/compression.hpp"

namespace shared_tensor::client {

/// The tensors of one request.
class OutgoingTensors : public codec::TensorPort {
public:
    /// Their bytes as the descriptors say, to be written behind the JSON.
    virtual const std::vector<BodyPart>& parts() const = 0;
    /// One of them lies in memory that is shared with the server in the session `session()`.
    virtual bool names_memory() const { return false; }
    virtual std::string session() const { return {}; }
    /// Bytes that were copied for those described so far.
    virtual std::uint64_t copied() const { return 0; }
    /// The server has read the request.
    virtual void answered() noexcept {}
};

/// A tensor in memory that is shared with the server, as an answer names it. Its lease waits to be used or given up.
class LeasedTensor {
public:
    virtual ~LeasedTensor() = default;
    virtual const std::string& lease() const = 0;
    /// Throws as codec::TensorPort::import does.
    virtual codec::TensorPointer import() const = 0;
};

/// A tensor of an answer lies in memory that cannot be opened here. It can be asked for by its lease, which is the
/// reader's to give up.
struct NotOpened {
    std::string lease, reason;
};

/// A tensor of an answer stayed in the server, under a lease, and can be fetched as a file.
struct ByUrl {
    std::string url;  ///< a path
    std::string lease;
};

/// Memory that is shared with the server of now; null: none is.
struct SharedBytes {
    std::byte* data = nullptr;
    std::shared_ptr<const void> owner;
};

/// How the tensors of messages cross: a seam, so that the rules of calls can be tested without libtorch.
/// Thread safety: all methods from any thread.
class TensorPorts {
public:
    virtual ~TensorPorts() = default;
    /// `require` is that of CallOptions. What is to be sent throws TransportNotPossible (of shared_tensor) then.
    virtual std::unique_ptr<OutgoingTensors> outgoing(std::string_view require) const = 0;
    /// `bytes` are those behind the JSON of an answer in frame form; tensors that view them keep `owner`. Its import()
    /// throws NotOpened and ByUrl besides. `session` is the one whose memory the answer may name, "" for none: where it
    /// has ended, what lies there throws TensorExpired.
    virtual std::unique_ptr<codec::TensorPort> incoming(std::span<const std::byte> bytes,
                                                        std::shared_ptr<const void> owner,
                                                        const std::string& session) const = 0;

    /// What stands behind "$tensor", read from its text; null: read it as JSON, with `incoming`.
    virtual std::unique_ptr<const LeasedTensor> leased(std::string_view descriptor, const std::string& session) const {
        (void)descriptor;
        (void)session;
        return nullptr;
    }

    /// The server could not read that parameter of a request: whether it can be sent again, since what it named goes
    /// another way from now on.
    virtual bool goes_another_way(std::string_view parameter, const std::string& reason) const {
        (void)parameter;
        (void)reason;
        return false;
    }

    /// Leases that came with an answer and that nobody has read: their memory may be used again.
    virtual void give_up(const std::vector<std::string>& leases) const { (void)leases; }

    /// Leases that came and will be read later: they do not end for want of a word.
    virtual void confirm(const std::vector<std::string>& leases) const { (void)leases; }

    /// The token by which the server knows whose memory requests and answers name; empty: none is shared.
    virtual std::string session() const { return {}; }
    /// The ways that are taken beside those of the options where one is shared, in order of wish.
    virtual std::string accepted() const { return "shm"; }
    /// The server does not know that token: it was started anew, or is another one.
    virtual void session_refused(const std::string& session) const { (void)session; }
    /// For tensors that are to be sent: what lies in it is not copied on the way. Throws std::bad_alloc.
    virtual SharedBytes take_shared(std::uint64_t bytes) const {
        (void)bytes;
        return {};
    }
    /// A session that keeps state and lets memory be shared, or nothing where none is shared.
    virtual std::optional<std::string> open_stateful_session() const { return std::nullopt; }
    /// Tensors that go as bytes are compressed from now on, if that makes them smaller.
    virtual void compress(Compression how) const { (void)how; }
    /// Of tensors in messages.
    virtual CompressionCounts compression() const { return {}; }
    /// What the server said on the local channel of the ways that tensors can go, null where there is none.
    virtual codec::Json ways() const { return nullptr; }
    /// Why memory is not shared just now; empty where it is, or nobody has tried yet.
    virtual std::string no_memory_reason() const { return {}; }
    /// Into `made`: an uninitialised tensor, in shared memory if it can be had.
    virtual TensorRef make_tensor(std::span<const std::int64_t> shape, DType dtype) const = 0;
};

/// Those of src/tensor. `local_socket` is the path of the server's local channel, empty for none. `devices` is as in
/// ClientOptions, and so is `min_shared_bytes`. Throws std::invalid_argument.
std::unique_ptr<TensorPorts> tensor_ports(std::string local_socket, std::string token,
                                          const std::string& devices = "auto",
                                          std::uint64_t min_shared_bytes = 32 << 10);

}  // namespace shared_tensor::client
