#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "sockets.hpp"

namespace bench {

/// An HTTP/1.1 connection that sends prepared bytes and reads an answer with Content-Length, at the least cost. It is
/// the same client for all HTTP servers, so only the servers differ.
class HttpConnection {
public:
    /// Takes ownership of the connected socket.
    explicit HttpConnection(int fd) : socket_(fd), buffer_(64 << 10, '\0') {}

    void send(std::string_view request) { write_all(socket_.fd(), request.data(), request.size()); }
    /// The body of the next answer; valid until the next call. Throws if the status is not 200.
    std::string_view receive();
    std::string_view round_trip(std::string_view request) {
        send(request);
        return receive();
    }
    /// Size of the last answer: head and body.
    std::size_t answer_bytes() const { return used_; }
    int fd() const { return socket_.fd(); }

private:
    bool whole(std::string_view& body) const;

    Socket socket_;
    std::string buffer_;
    std::size_t used_ = 0;
};

/// The address of an HTTP server: a TCP port of this machine, or the path of a Unix socket.
struct Endpoint {
    int port = 0;
    std::string path{};  ///< empty: TCP

    int connect() const { return path.empty() ? connect_tcp(port) : connect_unix(path); }
    std::string host() const { return path.empty() ? "127.0.0.1:" + std::to_string(port) : "localhost"; }
    /// An HTTP request: POST /jsonrpc with this body.
    std::string post(std::string_view body) const;
};

/// A call that is made again and again: each answer must equal the first, which was checked.
struct HttpCall {
    Endpoint endpoint;
    std::string request;           ///< head and body
    std::string answer;            ///< body
    std::size_t answer_bytes = 0;  ///< head and body
};

/// Makes the call once; `understood` checks its answer.
HttpCall prepare_call(Endpoint endpoint, std::string_view body,
                      const std::function<bool(std::string_view)>& understood);

}  // namespace bench
