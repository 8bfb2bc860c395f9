#include "net/message/head_parser.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/message/text.hpp"

namespace shared_tensor::net {

namespace {

/// Takes the next line off the front of `rest`, and returns it without its CRLF.
std::string_view take_line(std::string_view& rest) {
    const std::size_t end = rest.find("\r\n");
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), line.size() + 2));
    return line;
}

std::optional<std::string_view> read_fields(std::string_view rest, Headers& headers) {
    for (std::string_view line = take_line(rest); !line.empty(); line = take_line(rest)) {
        if (line.front() == ' ' || line.front() == '\t') return "a header line starts with a blank";
        const std::size_t colon = line.find(':');
        if (colon == std::string_view::npos) return "a header line has no colon";
        const std::string_view name = line.substr(0, colon);
        if (!is_token(name)) return "a header name holds characters that it must not";
        const std::string_view value = trim(line.substr(colon + 1));
        if (!is_field_value(value)) return "a header value holds control characters";
        headers.add(std::string(name), std::string(value));
    }
    return std::nullopt;
}

std::variant<Framing, std::string_view> read_framing(const Headers& headers, bool http_1_0) {
    Framing framing;
    const std::size_t lengths = headers.count("Content-Length");
    const std::size_t codings = headers.count("Transfer-Encoding");
    if (lengths > 1) return "Content-Length comes more than once";
    if (codings > 1) return "Transfer-Encoding comes more than once";
    if (lengths > 0 && codings > 0) return "Content-Length and Transfer-Encoding exclude each other";
    if (lengths > 0) {
        framing.length = parse_decimal(*headers.find("Content-Length"));
        if (!framing.length) return "Content-Length is no number";
    }
    if (codings > 0) {
        if (http_1_0) return "HTTP/1.0 has no Transfer-Encoding";
        if (!same_token(*headers.find("Transfer-Encoding"), "chunked")) return "the only Transfer-Encoding is chunked";
        framing.chunked = true;
    }
    return framing;
}

bool wants_keep_alive(const Headers& headers, bool http_1_0) {
    bool close = false;
    bool keep = false;
    for (const auto& [name, value] : headers) {
        if (!same_token(name, "Connection")) continue;
        close = close || list_has(value, "close");
        keep = keep || list_has(value, "keep-alive");
    }
    return !close && (keep || !http_1_0);
}

bool is_known_method(std::string_view method) {
    static constexpr std::string_view kMethods[] = {"POST",   "GET",     "HEAD",  "PUT",
                                                    "DELETE", "OPTIONS", "PATCH", "TRACE"};
    return std::find(std::begin(kMethods), std::end(kMethods), method) != std::end(kMethods);
}

struct RequestLine {
    std::string_view method, target;
    bool http_1_0 = false;
};

std::variant<RequestLine, HeadRejection> read_request_line(std::string_view line) {
    const std::size_t first = line.find(' ');
    const std::size_t last = line.rfind(' ');
    if (first == std::string_view::npos || first == last)
        return HeadRejection{400, "the request line is not METHOD PATH VERSION"};
    RequestLine parsed{line.substr(0, first), line.substr(first + 1, last - first - 1)};
    const std::string_view version = line.substr(last + 1);
    if (!is_token(parsed.method)) return HeadRejection{400, "the method holds characters that it must not"};
    if (version != "HTTP/1.1" && version != "HTTP/1.0") {
        if (version.starts_with("HTTP/")) return HeadRejection{505, "only HTTP/1.1 and HTTP/1.0 are spoken here"};
        return HeadRejection{400, "the request line is not METHOD PATH VERSION"};
    }
    parsed.http_1_0 = version == "HTTP/1.0";
    const auto visible = [](unsigned char c) { return c > 0x20 && c < 0x7f && c != '#'; };
    if (parsed.target.empty() || !std::all_of(parsed.target.begin(), parsed.target.end(), visible)) {
        return HeadRejection{400, "the path holds characters that must be percent-encoded"};
    }
    return parsed;
}

/// Splits the target into path and query. A full "http://host/path" must name the same host as the Host field, so that
/// a proxy and this server cannot disagree about the host.
std::optional<HeadRejection> read_target(std::string_view target, RequestHead& head) {
    constexpr std::string_view kScheme = "http://";
    if (target.size() >= kScheme.size() && same_token(target.substr(0, kScheme.size()), kScheme)) {
        target.remove_prefix(kScheme.size());
        const std::size_t slash = std::min(target.find_first_of("/?"), target.size());
        if (!same_token(target.substr(0, slash), head.headers.find("Host").value_or(""))) {
            return HeadRejection{400, "the host of the request line differs from the Host header"};
        }
        target.remove_prefix(slash);
        if (target.empty() || target.front() == '?') head.path = "/";
    } else if (target.front() != '/' && target != "*") {
        return HeadRejection{400, "the path does not start with /"};
    }
    const std::size_t mark = target.find('?');
    auto path = percent_decode(target.substr(0, mark));
    if (!path) return HeadRejection{400, "the path is not properly percent-encoded"};
    head.path += *path;
    if (mark != std::string_view::npos) head.query = target.substr(mark + 1);
    return std::nullopt;
}

std::optional<HeadRejection> read_expectation(RequestFrame& frame) {
    const auto expectation = frame.head.headers.find("Expect");
    if (!expectation || frame.http_1_0) return std::nullopt;  // RFC 9110 10.1.1: ignored in HTTP/1.0
    if (!same_token(*expectation, "100-continue")) return HeadRejection{417, "the only expectation is 100-continue"};
    frame.expect_continue = frame.framing.chunked || frame.framing.length.value_or(0) > 0;
    return std::nullopt;
}

}  // namespace

bool is_field_value(std::string_view value) {
    return std::all_of(value.begin(), value.end(),
                       [](unsigned char c) { return (c >= 0x20 && c != 0x7f) || c == '\t'; });
}

std::optional<HeadRejection> HeadScan::check_line(std::size_t length, const HeadLimits& limits) const {
    if (length <= limits.line_bytes + 2) return std::nullopt;  // its CRLF is not counted
    if (lines_ == 0) return HeadRejection{414, "the request line is too long"};
    return HeadRejection{431, "a header line is too long"};
}

std::variant<std::monostate, std::size_t, HeadRejection> HeadScan::advance(std::string_view bytes,
                                                                           const HeadLimits& limits) {
    while (true) {
        const void* found =
            next_ < bytes.size() ? std::memchr(bytes.data() + next_, '\n', bytes.size() - next_) : nullptr;
        if (found == nullptr) break;
        const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - bytes.data());
        const std::size_t length = at + 1 - line_start_;
        if (length < 2 || bytes[at - 1] != '\r') return HeadRejection{400, "lines must end in CRLF"};
        if (auto rejection = check_line(length, limits)) return *rejection;
        if (at + 1 > limits.head_bytes) return HeadRejection{431, "the headers are too large together"};
        next_ = line_start_ = at + 1;
        if (length == 2) return next_;
        if (lines_++ > limits.fields) return HeadRejection{431, "there are too many headers"};
    }
    next_ = bytes.size();
    if (auto rejection = check_line(bytes.size() - line_start_, limits)) return *rejection;
    if (bytes.size() > limits.head_bytes) return HeadRejection{431, "the headers are too large together"};
    return std::monostate{};
}

std::variant<RequestFrame, HeadRejection> parse_request_head(std::string_view head) {
    auto parsed = read_request_line(take_line(head));
    if (const auto* rejection = std::get_if<HeadRejection>(&parsed)) return *rejection;
    const auto& line = std::get<RequestLine>(parsed);

    RequestFrame frame;
    frame.head.method = line.method;
    frame.http_1_0 = line.http_1_0;
    if (auto wrong = read_fields(head, frame.head.headers)) return HeadRejection{400, *wrong};
    const std::size_t hosts = frame.head.headers.count("Host");
    if (hosts > 1 || (hosts == 0 && !line.http_1_0)) return HeadRejection{400, "there must be one Host header"};
    if (auto rejection = read_target(line.target, frame.head)) return *rejection;

    auto framing = read_framing(frame.head.headers, line.http_1_0);
    if (const auto* wrong = std::get_if<std::string_view>(&framing)) return HeadRejection{400, *wrong};
    frame.framing = std::get<Framing>(framing);
    frame.keep_alive = wants_keep_alive(frame.head.headers, line.http_1_0);
    if (!is_known_method(line.method)) return HeadRejection{501, "the method is unknown"};
    if (auto rejection = read_expectation(frame)) return *rejection;
    return frame;
}

std::variant<ResponseFrame, std::string_view> parse_response_head(std::string_view head) {
    const std::string_view line = take_line(head);
    const bool http_1_0 = line.starts_with("HTTP/1.0 ");
    if (!http_1_0 && !line.starts_with("HTTP/1.1 ")) return "the answer does not start with HTTP/1.1";
    const auto status = parse_decimal(line.substr(9, 3));
    if (!status || line.size() < 12 || (line.size() > 12 && line[12] != ' ') || *status < 100) {
        return "the answer's status is no number of three digits";
    }
    ResponseFrame frame;
    frame.status = static_cast<int>(*status);
    if (auto wrong = read_fields(head, frame.headers)) return *wrong;
    auto framing = read_framing(frame.headers, http_1_0);
    if (const auto* wrong = std::get_if<std::string_view>(&framing)) return *wrong;
    frame.framing = std::get<Framing>(framing);
    frame.keep_alive = wants_keep_alive(frame.headers, http_1_0);
    return frame;
}

}  // namespace shared_tensor::net
