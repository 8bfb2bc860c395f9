#pragma once

#include <string>

#include "http/message.hpp"
#include "http/wire.hpp"

namespace shared_tensor::http {

struct ResponseForm {
    bool close = false;          ///< say "Connection: close"
    bool keep_http_1_0 = false;  ///< say "Connection: keep-alive", which an HTTP/1.0 client needs to hear
    bool head_only = false;      ///< the answer to HEAD: the length without the body
    enum class Body { sized, chunked, to_the_end } body = Body::sized;  ///< how its end is told
};

/// Status line and header fields. Fields that hold control characters are left out: they could split the answer.
std::string render_response_head(const Response& response, ResponseForm form);

/// The head and a text body in one string, for answers that are written without waiting.
std::string render_response(const Response& response, ResponseForm form);

/// Head and body in one system call if the socket takes them. `bytes_out` grows by what was to be written.
WriteOutcome write_response(Wire& wire, const Response& response, ResponseForm form, const WriteLimits& limits,
                            std::size_t& bytes_out);

}  // namespace shared_tensor::http
