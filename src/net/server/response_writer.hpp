#pragma once

#include <string>
#include <string_view>

#include "net/message/message.hpp"
#include "net/stream/stream.hpp"

namespace shared_tensor::net {

struct ResponseForm {
    bool close = false;          ///< send "Connection: close"
    bool keep_http_1_0 = false;  ///< send "Connection: keep-alive", which HTTP/1.0 clients need
    bool head_only = false;      ///< the answer to HEAD: the length without the body
    enum class Body { sized, chunked, to_the_end } body = Body::sized;  ///< how the client finds its end
    const Headers* more_headers = nullptr;                              ///< besides those of the response
    std::string_view request_id{};                                      ///< X-Request-Id; empty: none
};

/// Status line and header fields. Leaves out fields with control characters, which could split the answer.
std::string render_response_head(const Response& response, ResponseForm form);

/// The head and a text body in one string, for answers that are written without waiting.
std::string render_response(const Response& response, ResponseForm form);

/// Writes head and body, in one system call if the socket takes them. Adds their size to `bytes_out`.
WriteOutcome write_response(Stream& stream, const Response& response, ResponseForm form, const WriteLimits& limits,
                            std::size_t& bytes_out);

}  // namespace shared_tensor::net
