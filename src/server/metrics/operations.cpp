#include "server/metrics/operations.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/bytes/ids.hpp"
#include "base/log/log.hpp"
#include "net/message/text.hpp"
#include "server/auth/access.hpp"
#include "server/auth/credentials.hpp"
#include "server/rpc/reply.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::chrono::seconds kLookEvery{1};

bool is_known_path(std::string_view path) { return path == "/metrics" || path == "/healthz" || path == "/readyz"; }

net::ServerOptions transport_options(const OperationsOptions& options, const ListenAddress& address,
                                     const HttpLimits& limits) {
    net::ServerOptions chosen{{limits}, address.host, address.port, {}};
    if (options.socket >= 0) chosen.sockets = {options.socket};
    chosen.max_connections = options.max_connections;
    chosen.reserved_threads = 1;
    return chosen;
}

std::shared_ptr<const std::vector<AccessToken>> read_tokens(const std::string& path) {
    if (path.empty()) return nullptr;
    auto tokens = std::make_shared<const std::vector<AccessToken>>(read_token_file(path));
    check_tokens(*tokens);
    return tokens;
}

net::Response rejected_as(int status, std::string_view why) {
    return error_response(
        status, status == 401 || status == 403 ? json_rpc::not_authorised(why) : json_rpc::invalid_request(why));
}

}  // namespace

net::Response ServerState::answer(std::string_view path) const {
    if (path == "/metrics") {
        net::Response page;
        page.content_type = "text/plain; version=0.0.4; charset=utf-8";
        page.text = metrics();
        return page;
    }
    if (path == "/healthz" || ready()) return net::Response::json(200, R"({"status":"ok"})");
    net::Response response = net::Response::json(503, R"({"status":"not ready"})");
    response.headers.add("Retry-After", "1");
    return response;
}

ListenAddress ListenAddress::parse(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    const std::string_view digits = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
    std::string_view host = text.substr(0, std::min(colon, text.size()));
    const bool in_brackets = host.starts_with('[') && host.ends_with(']');
    if (in_brackets) host = host.substr(1, host.size() - 2);
    const auto port = net::parse_decimal(digits);
    const bool is_good =
        !host.empty() && port && *port <= 65535 && (host.find(':') != std::string_view::npos) == in_brackets;
    if (!is_good) {
        throw std::invalid_argument("operations-listen is \"" + std::string(text) +
                                    "\": give an address and a port, such as 127.0.0.1:9464 or [::]:9464");
    }
    return {std::string(host), static_cast<int>(*port)};
}

Operations::Operations(OperationsOptions options, const HttpLimits& limits, ServerState state)
    : options_(std::move(options)),
      address_(ListenAddress::parse(options_.listen)),
      state_(std::move(state)),
      token_file_({options_.token_file}),
      tokens_(read_tokens(options_.token_file)),
      transport_(transport_options(options_, address_, limits), *this) {}

void Operations::start() {
    transport_.start();
    log::info("metrics and health are on ", url());
}

std::string Operations::url() const {
    const bool is_ipv6 = address_.host.find(':') != std::string::npos;
    const std::string host = is_ipv6 ? '[' + address_.host + ']' : address_.host;
    return "http://" + host + ':' + std::to_string(transport_.port());
}

void Operations::sweep(SteadyTime now) {
    if (now - looked_ < kLookEvery) return;
    looked_ = now;
    if (!token_file_.changed()) return;
    try {
        auto tokens = read_tokens(options_.token_file);
        tokens_.with([&](auto& held) { held.swap(tokens); });
        log::info("the token file for operations changed, and was read again");
    } catch (const std::exception& error) {
        log::error("the token file for operations changed and cannot be used; the earlier one stays in use: ",
                   error.what());
    }
}

/// "127.0.0.1:9464", "[::1]", "localhost", or a host of the list as it is written there.
bool Operations::knows_host(std::string_view host) const {
    const auto is_host = [&](const std::string& listed) { return net::same_token(host, listed); };
    if (std::any_of(options_.hosts.begin(), options_.hosts.end(), is_host)) return true;
    constexpr std::string_view kLocal = "localhost";
    const std::string_view port = host.substr(std::min(kLocal.size(), host.size()));
    const bool has_port = port.starts_with(':') && net::parse_decimal(port.substr(1));
    if (net::same_token(host.substr(0, kLocal.size()), kLocal) && (port.empty() || has_port)) return true;
    return is_address_host(host);
}

bool Operations::has_token(const net::RequestHead& head) const {
    const auto tokens = tokens_.with([](const auto& held) { return held; });
    if (tokens == nullptr) return true;
    const auto secret = bearer(head.headers);
    bool found = false;
    for (const AccessToken& token : *tokens)  // no early exit: the time must not reveal the token
        found |= secret && equal_in_constant_time(*secret, token.secret);
    return found;
}

net::Handler::Verdict Operations::admit(const net::RequestHead& head, bool /*is_handshake*/) {
    if (head.headers.find("Origin")) return rejected_as(403, "requests of web pages are rejected: send no Origin");
    const auto host = head.headers.find("Host");
    if (!host || head.headers.count("Host") != 1 || !knows_host(*host))
        return rejected_as(403, "Host must be an address, localhost, or one of --operations-allowed-host");
    if (!is_known_path(head.path))
        return rejected_as(404, "no such path: this port serves GET /metrics, /healthz and /readyz, and no calls");
    if (head.method != "GET" && head.method != "HEAD") {
        net::Response response = rejected_as(405, "this path takes GET, HEAD");
        response.headers.add("Allow", "GET, HEAD");
        return response;
    }
    if (head.path == "/metrics" && !has_token(head)) {
        net::Response response = rejected_as(401, "/metrics needs a token: send Authorization: Bearer TOKEN");
        response.headers.add("WWW-Authenticate", "Bearer");
        return response;
    }
    return net::BodyPlan{0, false};
}

net::Response Operations::handle(net::Request request, net::ResponseStream& /*response_stream*/) {
    return state_.answer(request.head.path);
}

net::Response Operations::rejection(int status, std::string_view reason, const net::RequestHead* /*head*/) {
    return status == 503 ? busy_response(reason) : rejected_as(status, reason);
}

}  // namespace shared_tensor::server
