#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "net/client/client.hpp"
#include "net/message/head_parser.hpp"
#include "net/stream/stream.hpp"

namespace shared_tensor::net {

/// Connects to `endpoint` within `timeout` and before `deadline`, with TLS if it says https. Throws TransportError: of
/// kind timeout after `deadline`; of kind connect if it cannot be reached, also after `timeout`; or as
/// TlsClient::connect(); soon after `stop` is requested, one of these. Blocks; neither the deadline nor a stop ends the
/// look-up of a name.
std::unique_ptr<Stream> connect_to(const Endpoint& endpoint, std::chrono::steady_clock::time_point deadline,
                                   std::chrono::milliseconds timeout, const std::stop_token& stop);

/// One connection to the server, for one request after another. One thread at a time, except shutdown().
class ClientConnection {
public:
    using Deadline = std::chrono::steady_clock::time_point;

    ClientConnection(std::unique_ptr<Stream> stream, std::string authority, std::size_t max_response_bytes);

    /// Sends `request` and reads the answer. Throws TransportError; the connection cannot be used after that.
    ClientResponse send(const ClientRequest& request, BufferPool& buffers);

    /// Whether the connection can be used for another request.
    bool reusable() const { return reusable_; }
    /// Whether the server has closed the connection, or sent something, while it was idle.
    bool stale();
    struct Upgraded {
        std::unique_ptr<Stream> stream;
        std::string received;  ///< bytes after the answer
    };
    /// After an answer 101: takes the stream for the other protocol.
    Upgraded take_upgraded();
    /// Ends a wait in send() with TransportError. Any thread.
    void shutdown() { stream_->shutdown(); }

    std::uint64_t bytes_in() const { return bytes_in_; }
    std::uint64_t bytes_out() const { return bytes_out_; }

private:
    enum class Sent { whole, answered_early, broken };

    std::string render_head(const ClientRequest& request) const;
    Sent send(const ClientRequest& request);
    Sent wait_to_send(Deadline deadline);
    ResponseFrame read_head(Deadline deadline);
    ResponseFrame read_head_after(Sent sent, Deadline deadline);
    void read_more(Deadline deadline);
    std::shared_ptr<PooledBuffer> read_body(const ResponseFrame& frame, const ClientRequest& request,
                                            BufferPool& buffers);
    void read_in_place(const ResponseFrame& frame, BodyPlace& place, Deadline deadline);

    std::unique_ptr<Stream> stream_;
    const std::string authority_;
    const std::size_t max_response_bytes_;
    InputBuffer input_;
    bool reusable_ = true;
    std::uint64_t bytes_in_ = 0;
    std::uint64_t bytes_out_ = 0;
};

}  // namespace shared_tensor::net
