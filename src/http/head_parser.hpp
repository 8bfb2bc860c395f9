#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "http/message.hpp"

namespace shared_tensor::http {

// The strict reading of a message's head (RFC 9110, 9112). Where the RFCs let a recipient be lenient, this one refuses:
// every leniency is a chance that a proxy in front and we disagree about where a request ends (request smuggling).
// Pure functions, no sockets: the whole table of odd heads is tested without a server.

struct HeadLimits {
    std::size_t line_bytes = 8 << 10;
    std::size_t fields = 100;
    std::size_t head_bytes = 64 << 10;
};

/// Without control characters but tabs.
bool is_field_value(std::string_view value);

/// Why a head is refused: the status of the answer and one sentence for people.
struct HeadFault {
    int status;
    std::string_view reason;
};

/// Looks for the end of a head that arrives in pieces, without looking at any byte twice. Bad line ends and lines
/// that are too long are found as soon as they are there, not when the head is whole.
class HeadScan {
public:
    /// `bytes` is everything received since the head's first byte; call again with more of it.
    /// The size of the head with its empty line, none while it is incomplete, or the fault.
    std::variant<std::monostate, std::size_t, HeadFault> advance(std::string_view bytes, const HeadLimits& limits);

private:
    std::optional<HeadFault> check_line(std::size_t length, const HeadLimits& limits) const;

    std::size_t next_ = 0;
    std::size_t line_start_ = 0;
    std::size_t lines_ = 0;
};

/// Where the body ends. Neither: no body (request), or until the connection closes (response).
struct Framing {
    std::optional<std::uint64_t> length;
    bool chunked = false;
};

struct RequestFrame {
    RequestHead head;  ///< without peer
    Framing framing;
    bool keep_alive = true;
    bool http_1_0 = false;
    bool expect_continue = false;
};

/// `head` as HeadScan measured it.
std::variant<RequestFrame, HeadFault> parse_request_head(std::string_view head);

struct ResponseFrame {
    int status = 0;
    Headers headers;
    Framing framing;
    bool keep_alive = true;
};

/// The text of the alternative says what is wrong with the answer.
std::variant<ResponseFrame, std::string_view> parse_response_head(std::string_view head);

}  // namespace shared_tensor::http
