#include <stdexcept>

#include "http/client.hpp"
#include "http/text.hpp"

namespace shared_tensor::http {

namespace {

constexpr int kDefaultPort = 2537;

[[noreturn]] void refuse(std::string_view url, std::string_view why) {
    std::string text;
    text.append("\"").append(url).append("\" is no address of a server (").append(why);
    text.append("): use http://host:port, https://host:port, http://[::1]:port or unix:/path/to/socket");
    throw std::invalid_argument(text);
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
    if (!same_token(text.substr(0, prefix.size()), prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

int read_port(std::string_view url, std::string_view text) {
    const auto port = parse_decimal(text);
    if (!port || *port == 0 || *port > 65535) refuse(url, "the port is no number from 1 to 65535");
    return static_cast<int>(*port);
}

Endpoint unix_endpoint(std::string_view url, std::string_view path) {
    if (path.starts_with("//")) path.remove_prefix(2);  // unix:///path
    if (path.empty() || path.front() != '/') refuse(url, "the socket's path is not absolute");
    Endpoint endpoint;
    endpoint.unix_socket = path;
    return endpoint;
}

/// Splits "host", "host:port", "[v6]", "[v6]:port".
Endpoint tcp_endpoint(std::string_view url, std::string_view rest) {
    if (rest.ends_with('/')) rest.remove_suffix(1);
    if (rest.find_first_of("/?#@") != std::string_view::npos) refuse(url, "there is more than host and port");
    Endpoint endpoint;
    endpoint.port = kDefaultPort;
    std::string_view after;
    if (rest.starts_with('[')) {
        const std::size_t end = rest.find(']');
        if (end == std::string_view::npos) refuse(url, "the bracket is not closed");
        endpoint.host = rest.substr(1, end - 1);
        after = rest.substr(end + 1);
    } else {
        const std::size_t colon = rest.find(':');
        endpoint.host = rest.substr(0, colon);
        after = colon == std::string_view::npos ? std::string_view() : rest.substr(colon);
    }
    if (endpoint.host.empty()) refuse(url, "the host is missing");
    if (after.empty()) return endpoint;
    if (after.front() != ':') refuse(url, "the port is no number from 1 to 65535");
    endpoint.port = read_port(url, after.substr(1));
    return endpoint;
}

}  // namespace

Endpoint Endpoint::parse(std::string_view url) {
    std::string_view rest = url;
    for (const char letter : url) {
        const auto c = static_cast<unsigned char>(letter);
        if (c <= 0x20 || c == 0x7f) refuse("...", "it holds blanks or control characters");
    }
    if (take_prefix(rest, "unix:") || take_prefix(rest, "http+unix:")) return unix_endpoint(url, rest);
    if (take_prefix(rest, "http://")) return tcp_endpoint(url, rest);
    if (take_prefix(rest, "https://")) {
        Endpoint endpoint = tcp_endpoint(url, rest);
        endpoint.tls = true;
        return endpoint;
    }
    refuse(url, "the scheme is missing or unknown");
}

std::string Endpoint::authority() const {
    if (!unix_socket.empty()) return "localhost";
    const bool v6 = host.find(':') != std::string::npos;
    std::string text;
    text.append(v6 ? "[" : "").append(host).append(v6 ? "]:" : ":").append(std::to_string(port));
    return text;
}

std::string Endpoint::url() const {
    std::string text = !unix_socket.empty() ? "unix:" : tls ? "https://" : "http://";
    return text.append(unix_socket.empty() ? authority() : unix_socket);
}

}  // namespace shared_tensor::http
