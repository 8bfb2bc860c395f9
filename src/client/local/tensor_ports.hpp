#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes/compression.hpp"
#include "base/memory/memory_block.hpp"
#include "protocol/codec/value.hpp"

namespace shared_tensor::client {

/// The tensors of one request.
class OutgoingTensors : public codec::TensorPort {
public:
    /// The bytes to send behind the JSON, at the offsets in the descriptors.
    virtual const std::vector<BodyPart>& parts() const = 0;
    /// The session in whose memory, shared with the server, a tensor of the request lies; empty if no tensor does.
    virtual std::string memory() const { return {}; }
    /// Bytes that were copied for the tensors described so far.
    virtual std::uint64_t copied() const { return 0; }
    /// Called when the server has read the request.
    virtual void answered() noexcept {}
};

/// A tensor of an answer in memory that is shared with the server. Its reader must import it or release its lease.
struct LeasedTensor {
    std::string lease;
    std::function<codec::TensorPointer()> import;  ///< throws as codec::TensorPort::import does
};

/// Thrown if this process cannot open the memory of a tensor in an answer. The reader can request the tensor again by
/// its lease, and must release the lease.
struct NotOpened {
    std::string lease, reason;
};

/// Thrown if a tensor of an answer stayed in the server under a lease. It can be downloaded as a file.
struct ByUrl {
    std::string url;  ///< a path
    std::string lease;
};

class SharedMemory;

/// The transports for tensors in a client's messages. An interface, so that the rules of calls can be tested without
/// them.
/// Thread safety: all methods from any thread.
class TensorPorts {
public:
    virtual ~TensorPorts() = default;
    /// `require` is CallOptions::require. With it, describing a tensor that cannot cross as required throws
    /// shared_tensor::TransportNotPossible.
    virtual std::unique_ptr<OutgoingTensors> outgoing(std::string_view require) const = 0;
    /// Reads the tensors of an answer. `bytes` are the bytes behind the JSON of a framed answer; tensors that view them
    /// keep `owner`. The answer may name memory of `session` ("": of no session); if that session has ended, import()
    /// of a tensor in its memory throws TensorExpired. import() also throws NotOpened and ByUrl.
    virtual std::unique_ptr<codec::TensorPort> incoming(std::span<const std::byte> bytes,
                                                        std::shared_ptr<const void> owner,
                                                        const std::string& session) const = 0;

    /// Reads the value of "$tensor" from its text. Returns nothing if it must be read as JSON, with `incoming`.
    virtual std::optional<LeasedTensor> leased(std::string_view /*descriptor*/, const std::string& /*session*/) const {
        return std::nullopt;
    }
    /// Called after the server could not read `parameter` of a request. Returns true if the request can be sent again,
    /// because its tensor will now use another transport.
    virtual bool uses_another_transport(std::string_view /*parameter*/, const std::string& /*reason*/) const {
        return false;
    }
    /// Releases leases whose tensors will not be read: the server may use their memory again.
    virtual void abandon(const std::vector<std::string>& /*leases*/) const {}
    /// The token of the session whose memory requests and answers may name; empty if no memory is shared.
    virtual std::string session() const { return {}; }
    /// The memory that is shared with the server; null if no memory is shared now. Connects if needed.
    virtual std::shared_ptr<SharedMemory> memory() const { return nullptr; }
    /// Called when the server does not know the session: it was restarted, or it is another server.
    virtual void session_rejected(const std::string& /*session*/) const {}
    /// Opens a session that keeps state and can share memory. Returns nothing if no memory is shared. Blocks.
    virtual std::optional<std::string> open_stateful_session() const { return std::nullopt; }
    /// Whether requests of that session, of open_stateful_session() or not, may name memory of this client.
    virtual bool may_name_memory(const std::string& /*session*/) const { return false; }
    /// The session of open_stateful_session() is being closed.
    virtual void session_closed(const std::string& /*session*/) const {}
    /// From now on, tensors that are sent as bytes are compressed with `how` if that makes them smaller.
    virtual void compress(Compression /*how*/) const {}
    /// Counts of the tensors in messages.
    virtual CompressionCounts compression() const { return {}; }
    /// Why no memory is shared now; empty if memory is shared, or if no connection was tried yet.
    virtual std::string no_memory_reason() const { return {}; }
};

/// The ports with the transports of src/tensor. `local_socket` is the path of the server's local channel, empty for
/// none. `devices` and `min_shared_bytes` are as in ClientOptions. Throws std::invalid_argument.
std::unique_ptr<TensorPorts> tensor_ports(std::string local_socket, std::string token,
                                          const std::string& devices = "auto",
                                          std::uint64_t min_shared_bytes = 32 << 10);

/// The tensors of one message to the server. The real port is made for the first tensor, because most messages have
/// none.
class OutgoingPort final : public codec::TensorPort {
public:
    OutgoingPort(const TensorPorts& ports, std::string require) : ports_(&ports), require_(std::move(require)) {}

    codec::TensorPointer import(const codec::Json& descriptor) override { return real().import(descriptor); }
    codec::TensorPointer wrap(const TensorRef& tensor) override { return real().wrap(tensor); }
    void describe(const codec::TensorPointer& tensor, json_rpc::LongText& out) override {
        real().describe(tensor, out);
    }

    const TensorPorts& ports() const { return *ports_; }
    const std::string& require() const { return require_; }
    /// Null if the message has no tensor.
    const OutgoingTensors* used() const { return real_.get(); }
    std::unique_ptr<OutgoingTensors> take() { return std::move(real_); }
    void answered() noexcept {
        if (real_) real_->answered();
    }

private:
    OutgoingTensors& real() {
        if (!real_) real_ = ports_->outgoing(require_);
        return *real_;
    }
    const TensorPorts* ports_;
    const std::string require_;
    std::unique_ptr<OutgoingTensors> real_;
};

/// The handle of an object, as messages contain it. Throws std::invalid_argument if the object did not come from a
/// server.
inline codec::Json handle_of(const ObjectPointer& object) {
    if (object->id.empty())
        throw std::invalid_argument("an object that did not come from a server cannot be passed to one");
    codec::Json handle{{"id", object->id}};
    if (!object->type.empty()) handle["type"] = object->type;
    return handle;
}

}  // namespace shared_tensor::client
