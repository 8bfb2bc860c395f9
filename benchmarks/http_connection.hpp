#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "sockets.hpp"

namespace bench {

/// One HTTP/1.1 connection that sends prepared bytes and takes an answer with Content-Length, as cheaply as can be: the
/// same client for every HTTP server, so that the servers are compared.
class HttpConnection {
public:
    /// Takes the connected socket over.
    explicit HttpConnection(int fd) : socket_(fd), buffer_(64 << 10, '\0') {}

    void send(std::string_view request) { write_all(socket_.fd(), request.data(), request.size()); }
    /// The body of the next answer, until the next call. Throws when the status is not 200.
    std::string_view receive();
    std::string_view round_trip(std::string_view request) {
        send(request);
        return receive();
    }
    /// Of the last answer, head and body.
    std::size_t answer_bytes() const { return used_; }
    int fd() const { return socket_.fd(); }

private:
    bool whole(std::string_view& body) const;

    Socket socket_;
    std::string buffer_;
    std::size_t used_ = 0;
};

/// Where an HTTP server listens: a TCP port of this machine, or the path of a Unix socket.
struct Endpoint {
    int port = 0;
    std::string path{};  ///< empty: TCP

    int connect() const { return path.empty() ? connect_tcp(port) : connect_unix(path); }
    std::string host() const { return path.empty() ? "127.0.0.1:" + std::to_string(port) : "localhost"; }
    /// A POST of /jsonrpc.
    std::string post(std::string_view body) const;
};

/// A call that is made once and again: every answer has to be the one that was understood at first.
struct HttpCall {
    Endpoint endpoint;
    std::string request;           ///< head and body
    std::string answer;            ///< body
    std::size_t answer_bytes = 0;  ///< head and body
};

/// Makes the call once; `understood` tells whether its answer is right.
HttpCall prepare_call(Endpoint endpoint, std::string_view body,
                      const std::function<bool(std::string_view)>& understood);

}  // namespace bench
