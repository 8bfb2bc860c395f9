#include "server/access.hpp"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "util/ids.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::size_t kMinSecretBytes = 16;

std::string lower(std::string_view text) {
    std::string result(text);
    std::transform(result.begin(), result.end(), result.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return result;
}

/// "Bearer x" -> "x"; the scheme compares without case.
std::optional<std::string_view> bearer(const http::Headers& headers) {
    const auto value = headers.find("Authorization");
    if (!value || headers.count("Authorization") != 1) return std::nullopt;
    constexpr std::string_view kScheme = "bearer ";
    if (value->size() <= kScheme.size() || lower(value->substr(0, kScheme.size())) != kScheme) return std::nullopt;
    std::string_view secret = value->substr(kScheme.size());
    while (secret.starts_with(' '))
        secret.remove_prefix(1);
    return secret;
}

Principal user(uid_t uid) { return {"uid:" + std::to_string(uid), true}; }

}  // namespace

bool is_loopback_host(std::string_view host) {
    return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

Access::Access(const ServerOptions& options)
    : tokens_(options.tokens),
      hosts_(options.allowed_hosts),
      origins_(options.allowed_origins),
      loopback_(options.host.empty() || is_loopback_host(options.host)),
      insecure_(options.insecure),
      own_uid_(::getuid()),
      port_(options.port) {
    if (!loopback_ && tokens_.empty() && !insecure_) {
        throw std::invalid_argument("refusing to listen on " + options.host +
                                    " without a token: anyone who reaches it could run functions. Give a token file "
                                    "(--token-file), or --insecure if the network is trusted");
    }
    for (const AccessToken& token : tokens_) {
        if (token.secret.size() < kMinSecretBytes) {
            throw std::invalid_argument("the token \"" + token.name +
                                        "\" is shorter than 16 characters: make one with "
                                        "`openssl rand -hex 32`");
        }
    }
    for (std::string& host : hosts_)
        host = lower(host);
}

std::variant<Principal, Refusal> Access::check(const http::RequestHead& head) const {
    if (const auto origin = head.headers.find("Origin")) {
        if (std::find(origins_.begin(), origins_.end(), *origin) == origins_.end()) {
            return Refusal{403, "requests of web pages are refused: Origin is not among --allowed-origin"};
        }
    }
    if (!head.peer.unix_socket && (loopback_ || !hosts_.empty())) {
        const auto host = head.headers.find("Host");
        if (!host || head.headers.count("Host") != 1 || !host_is_ours(lower(*host))) {
            return Refusal{
                403, "Host must be 127.0.0.1, localhost or [::1] with this server's port, or one of --allowed-host"};
        }
    }
    if (!tokens_.empty()) return by_token(bearer(head.headers), "Authorization: Bearer TOKEN");
    return by_user(head.peer);
}

std::variant<Principal, Refusal> Access::check_local(uid_t uid, std::string_view token) const {
    if (!tokens_.empty()) return by_token(token, "session.open {\"token\": TOKEN}");
    http::Peer peer;
    peer.unix_socket = true;
    peer.uid = uid;
    return by_user(peer);
}

bool Access::host_is_ours(std::string_view host) const {
    if (std::find(hosts_.begin(), hosts_.end(), host) != hosts_.end()) return true;
    if (!loopback_) return false;
    const int bound = port_.load();
    const std::string port = std::string(1, ':').append(std::to_string(bound));  // gcc 12 warns falsely about ":" + ...
    for (const std::string_view name : {"127.0.0.1", "localhost", "[::1]"}) {
        if (host == std::string(name) + port || (bound == 80 && host == name)) return true;
    }
    return false;
}

std::variant<Principal, Refusal> Access::by_token(const std::optional<std::string_view>& secret,
                                                  const char* how) const {
    const AccessToken* found = nullptr;
    for (const AccessToken& token : tokens_) {  // all of them, so that the time tells nothing
        if (secret && equal_in_constant_time(*secret, token.secret)) found = &token;
    }
    if (found == nullptr) return Refusal{401, std::string("this server wants a token: send ") + how};
    return Principal{"token:" + found->name, found->admin};
}

std::variant<Principal, Refusal> Access::by_user(const http::Peer& peer) const {
    if (insecure_ && !loopback_ && !peer.unix_socket) return Principal{"anyone", false};
    if (peer.uid == own_uid_ || peer.uid == uid_t{0}) return user(*peer.uid);
    if (insecure_) return Principal{peer.uid ? "uid:" + std::to_string(*peer.uid) : "anyone", false};
    return Refusal{403, "this server serves its own user only; start it with a token file to let others in"};
}

}  // namespace shared_tensor::server
