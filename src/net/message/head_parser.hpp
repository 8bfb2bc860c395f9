#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "net/message/message.hpp"

namespace shared_tensor::net {

// Strict reading of the head of a message (RFC 9110, 9112). Rejects input for which the RFCs permit leniency: with each
// leniency, a proxy and this server could disagree about where a request ends (request smuggling). Pure functions.

struct HeadLimits {
    std::size_t line_bytes = 8 << 10;   ///< as in nginx and Apache
    std::size_t fields = 100;           ///< as in Apache; clients and proxies send a few dozen
    std::size_t head_bytes = 64 << 10;  ///< request line and fields together
};

/// Whether the value has no control characters except tabs.
bool is_field_value(std::string_view value);

/// Why a head is rejected: the status of the answer and one sentence for people.
struct HeadRejection {
    int status;
    std::string_view reason;
};

/// Searches for the end of a head that arrives in pieces. Looks at each byte once. Finds bad line ends and lines that
/// are too long before the head is complete.
class HeadScan {
public:
    /// `bytes` is all that was received since the head's first byte; call again with more.
    /// Returns the size of the head with its empty line, monostate while it is incomplete, or the fault.
    std::variant<std::monostate, std::size_t, HeadRejection> advance(std::string_view bytes, const HeadLimits& limits);

private:
    std::optional<HeadRejection> check_line(std::size_t length, const HeadLimits& limits) const;

    std::size_t next_ = 0;
    std::size_t line_start_ = 0;
    std::size_t lines_ = 0;
};

/// Where the body ends. Without both: a request has no body, a response ends when the connection closes.
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

/// `head` has the size that HeadScan returned.
std::variant<RequestFrame, HeadRejection> parse_request_head(std::string_view head);

struct ResponseFrame {
    int status = 0;
    Headers headers;
    Framing framing;
    bool keep_alive = true;
};

/// The text says what is wrong with the response.
std::variant<ResponseFrame, std::string_view> parse_response_head(std::string_view head);

}  // namespace shared_tensor::net
