#pragma once

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

/// Takes one request from its head to its answer, and blocks until that is written. `input` starts with what follows
/// the head. What the handler throws becomes a bare 500; std::bad_alloc may leave.
After run_request(ServerContext& context, ServingThread& thread, Connection& connection, InputBuffer& input,
                  RequestFrame frame);

/// Answers a request that cannot be taken any further.
After refuse_request(ServerContext& context, ServingThread& thread, Connection& connection, HeadFault fault);

}  // namespace shared_tensor::http
