#pragma once

#include <memory>

#include "http/head_parser.hpp"
#include "http/input_buffer.hpp"
#include "http/server_context.hpp"

namespace shared_tensor::http {

/// What becomes of a connection after a request.
enum class After {
    keep,     ///< the next request may follow
    close,    ///< nothing more to say or to read
    goodbye,  ///< the answer is out, but bytes of the client are unread: closing now could destroy the answer
};

/// Takes one request through cpp-httplib's request processing and our handler. Every thread of the pool has its own.
class RequestRunner {
public:
    explicit RequestRunner(ServerContext& context);
    ~RequestRunner();

    /// `input` starts with the request's head of `head_bytes`, which `frame` was read from. Blocks until the answer is
    /// written. Never throws.
    After run(Connection& connection, InputBuffer& input, RequestFrame frame, std::size_t head_bytes);

    /// Answers a request whose head is refused.
    After refuse(Connection& connection, HeadFault fault);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor::http
