#include "server/auth/access.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "base/bytes/ids.hpp"
#include "net/message/text.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::size_t kMinSecretBytes = 16;

bool is_same(const AccessToken& a, const AccessToken& b) {
    return a.name == b.name && a.secret == b.secret && a.admin == b.admin && a.allow == b.allow;
}

}  // namespace

void check_tokens(const std::vector<AccessToken>& tokens) {
    for (const AccessToken& token : tokens) {
        const auto same_name = [&](const AccessToken& other) { return other.name == token.name; };
        if (std::count_if(tokens.begin(), tokens.end(), same_name) > 1)
            throw std::invalid_argument("there are two tokens \"" + token.name + "\": each needs a name of its own");
        const auto same_secret = [&](const AccessToken& other) {
            return other.secret == token.secret && other.name != token.name;
        };
        if (const auto other = std::find_if(tokens.begin(), tokens.end(), same_secret); other != tokens.end())
            throw std::invalid_argument("the tokens \"" + token.name + "\" and \"" + other->name +
                                        "\" have the same secret: give each its own");
        if (token.secret.size() >= kMinSecretBytes) continue;
        throw std::invalid_argument("the token \"" + token.name +
                                    "\" is shorter than 16 characters: make one with `openssl rand -hex 32`");
    }
}

/// The case of the scheme is ignored (RFC 9110, section 11.1).
std::optional<std::string_view> bearer(const net::Headers& headers) {
    const auto value = headers.find("Authorization");
    if (!value || headers.count("Authorization") != 1) return std::nullopt;
    constexpr std::string_view kScheme = "bearer ";
    if (value->size() <= kScheme.size() || !net::same_token(value->substr(0, kScheme.size()), kScheme))
        return std::nullopt;
    std::string_view secret = value->substr(kScheme.size());
    while (secret.starts_with(' '))
        secret.remove_prefix(1);
    return secret;
}

std::optional<std::string> token_of_page(const net::Headers& headers) {
    constexpr std::string_view kPrefix = "shared-tensor.token.";
    const auto offered = headers.find("Sec-WebSocket-Protocol");
    if (!offered || headers.count("Sec-WebSocket-Protocol") != 1) return std::nullopt;
    std::optional<std::string> token;
    std::size_t tokens = 0;
    for_each_in(*offered, [&](std::string_view protocol) {
        if (!protocol.starts_with(kPrefix)) return;
        token = net::percent_decode(protocol.substr(kPrefix.size()));
        ++tokens;
    });
    return tokens == 1 ? token : std::nullopt;
}

bool is_address_host(std::string_view host) {
    const auto is_address = [](int family, std::string_view text) {
        in6_addr address{};  // large enough for both
        return ::inet_pton(family, std::string(text).c_str(), &address) == 1;
    };
    const std::size_t bracket = host.find(']');
    const bool in_brackets = host.starts_with('[') && bracket != std::string_view::npos;
    const std::size_t end = in_brackets ? bracket + 1 : std::min(host.find(':'), host.size());
    const std::string_view name = host.substr(0, end), port = host.substr(end);
    if (!port.empty() && (port.front() != ':' || !net::parse_decimal(port.substr(1)))) return false;
    return in_brackets ? is_address(AF_INET6, name.substr(1, name.size() - 2)) : is_address(AF_INET, name);
}

namespace {

/// A name may begin with "127." as well, and mean any address.
bool is_ipv4_loopback(std::string_view host) {
    in_addr address{};
    return ::inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

}  // namespace

bool is_loopback_host(std::string_view host) {
    return host == "localhost" || host == "::1" || host == "[::1]" || is_ipv4_loopback(host);
}

namespace {

/// Scheme and host, and a port perhaps, in the form of https://html.spec.whatwg.org/#ascii-serialisation-of-an-origin.
bool is_origin(std::string_view text) {
    const std::size_t scheme = text.find("://");
    if (scheme == 0 || scheme == std::string_view::npos) return false;
    const std::string_view rest = text.substr(scheme + 3);
    constexpr std::string_view kNever = "/?#@*";
    const bool plain = std::all_of(text.begin(), text.end(),
                                   [](unsigned char c) { return c > 0x20 && c < 0x7f && !(c >= 'A' && c <= 'Z'); });
    const bool default_port =
        (text.starts_with("https:") && rest.ends_with(":443")) || (text.starts_with("http:") && rest.ends_with(":80"));
    return plain && !default_port && !rest.empty() && !rest.ends_with(':') &&
           rest.find_first_of(kNever) == std::string_view::npos;
}

}  // namespace

Access::Access(const ServerOptions& options, std::vector<AccessToken> tokens, Clients& clients)
    : clients_(clients),
      tokens_(std::make_shared<const Tokens>()),
      hosts_(options.allowed_hosts),
      origins_(options.allowed_origins),
      loopback_(options.host.empty() || is_loopback_host(options.host)),
      insecure_(options.insecure),
      wants_certificates_(!options.tls.authorities.empty()),
      has_tls_(!options.tls.certificate.empty()),
      has_pages_(options.dashboard),
      named_callers_(options.named_callers),
      own_uid_(::getuid()),
      port_(options.port) {
    if (!loopback_ && tokens.empty() && !wants_certificates_ && !insecure_) {
        throw std::invalid_argument(
            "refusing to listen on " + options.host +
            " without a token: anyone who reaches it could run functions. Give a token file (--token-file), "
            "authorities for certificates of clients (--tls-client-ca), or --insecure if the network is trusted");
    }
    for (const std::string& origin : origins_) {
        if (!is_origin(origin))
            throw std::invalid_argument(
                "allowed origins are named one by one as browsers send them, such as https://example.org:8443, in "
                "small letters and with nothing after the port, not \"" +
                origin + '"');
    }
    use_tokens(std::move(tokens));
}

std::shared_ptr<const Access::Tokens> Access::tokens() const {
    return tokens_.with([](const auto& held) { return held; });
}

bool Access::use_tokens(std::vector<AccessToken> wanted) {
    check_tokens(wanted);
    const auto before = tokens();
    auto after = std::make_shared<Tokens>();
    std::vector<bool> goes_on(before->size(), false);
    for (AccessToken& token : wanted) {
        const auto known =
            std::find_if(before->begin(), before->end(), [&](const Token& old) { return is_same(old.token, token); });
        const bool is_known = known != before->end();
        if (is_known) goes_on[static_cast<std::size_t>(known - before->begin())] = true;
        auto grant = is_known ? known->grant : std::make_shared<Permissions>(token.allow);
        after->push_back({std::move(token), std::move(grant)});
    }
    tokens_.with([&](auto& held) { held = std::move(after); });
    bool revoked = false;
    for (std::size_t i = 0; i < before->size(); ++i) {
        if (goes_on[i]) continue;
        (*before)[i].grant->revoke();
        revoked = true;
    }
    return revoked;
}

bool Access::is_allowed_origin(std::string_view origin) const {
    return std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

/// Whether a page of this server itself sends the request. If Host was not checked, it must be an address, unless the
/// page needs a token: otherwise a page of a name that DNS bound to this server's address would be taken for its own.
bool Access::is_own_page(const net::RequestHead& head, std::string_view origin) const {
    const auto host = head.headers.find("Host");
    if (!has_pages_ || !host) return false;
    if (!checks_host(head.peer) && !is_address_host(*host) && tokens()->empty()) return false;
    const std::string_view scheme = has_tls_ && !head.peer.unix_socket ? "https://" : "http://";
    return net::same_token(origin, std::string(scheme).append(*host));
}

std::optional<Rejection> Access::check_place(const net::RequestHead& head) const {
    if (const auto origin = head.headers.find("Origin")) {
        const bool is_one = head.headers.count("Origin") == 1 && head.headers.count("Host") <= 1;
        if (!is_one || !(is_allowed_origin(*origin) || is_own_page(head, *origin))) {
            return Rejection{403, "requests of web pages are rejected: Origin is not among --allowed-origin",
                             RejectedFor::origin};
        }
    }
    if (checks_host(head.peer)) {
        const auto host = head.headers.find("Host");
        if (!host || head.headers.count("Host") != 1 || !host_is_ours(*host)) {
            return Rejection{
                403, "Host must be 127.0.0.1, localhost or [::1] with this server's port, or one of --allowed-host",
                RejectedFor::host};
        }
    }
    return std::nullopt;
}

std::optional<Rejection> Access::check_certificate(const net::Peer& peer) const {
    if (!wants_certificates_ || peer.unix_socket) return std::nullopt;
    if (!peer.certificate)
        return Rejection{401, "this server wants a certificate of its clients: show one in the TLS handshake",
                         RejectedFor::certificate};
    if (!peer.certificate->is_good)
        return Rejection{403, "the client's certificate is not valid, or of no authority that this server knows",
                         RejectedFor::certificate};
    return std::nullopt;
}

std::optional<Rejection> Access::check_page(const net::RequestHead& head) const {
    if (auto rejected = check_place(head)) return rejected;
    if (auto rejected = check_certificate(head.peer)) return rejected;
    if (!tokens()->empty()) return std::nullopt;
    auto checked = check(head);
    auto* rejected = std::get_if<Rejection>(&checked);
    return rejected != nullptr ? std::optional(std::move(*rejected)) : std::nullopt;
}

std::variant<Principal, Rejection> Access::check(const net::RequestHead& head) const {
    if (auto rejected = check_place(head)) return std::move(*rejected);
    if (auto rejected = check_certificate(head.peer)) return std::move(*rejected);
    const auto tokens = this->tokens();
    if (!tokens->empty()) {
        const auto of_page = token_of_page(head.headers);
        const auto secret = bearer(head.headers);
        return by_token(*tokens, secret || !of_page ? secret : std::optional<std::string_view>(*of_page),
                        "Authorization: Bearer TOKEN");
    }
    if (named_callers_) return by_name(head.peer, bearer(head.headers).value_or(""));
    if (!wants_certificates_ || head.peer.unix_socket) return by_user(head.peer);
    Principal principal{"cert:" + head.peer.certificate->name, false};
    principal.use = clients_.of(principal.name, false);
    return principal;
}

std::variant<Principal, Rejection> Access::check_local(uid_t uid, std::string_view token) const {
    const auto tokens = this->tokens();
    if (!tokens->empty()) return by_token(*tokens, token, "session.open {\"token\": TOKEN}");
    net::Peer peer;
    peer.unix_socket = true;
    peer.uid = uid;
    return named_callers_ ? by_name(peer, token) : by_user(peer);
}

bool Access::host_is_ours(std::string_view host) const {
    const auto is_host = [&](const std::string& allowed) { return net::same_token(host, allowed); };
    if (std::any_of(hosts_.begin(), hosts_.end(), is_host)) return true;
    if (!loopback_) return false;
    const int bound = port_.load();
    std::array<char, 16> digits{};
    const std::string_view own_port(digits.data(), std::to_chars(digits.data(), digits.end(), bound).ptr);
    const std::size_t colon = host.ends_with(']') ? std::string_view::npos : host.rfind(':');
    const std::string_view name = host.substr(0, colon);
    if (!net::same_token(name, "localhost") && name != "[::1]" && !is_ipv4_loopback(name)) return false;
    return colon == std::string_view::npos ? bound == 80 : host.substr(colon + 1) == own_port;
}

std::variant<Principal, Rejection> Access::by_token(const Tokens& tokens, const std::optional<std::string_view>& secret,
                                                    const char* how) const {
    const Token* found = nullptr;
    for (const Token& one : tokens) {  // no early exit: the time must not reveal the token
        if (secret && equal_in_constant_time(*secret, one.token.secret)) found = &one;
    }
    if (found == nullptr)
        return Rejection{401, std::string("this server wants a token: send ") + how, RejectedFor::token};
    Principal principal{"token:" + found->token.name, found->token.admin, found->grant};
    principal.use = clients_.of(principal.name, false);
    return principal;
}

Principal Access::user(uid_t uid, bool is_own) const {
    Principal principal{"uid:" + std::to_string(uid), is_own};
    principal.use = clients_.of(principal.name, is_own);
    return principal;
}

bool Access::may_connect(uid_t uid) const {
    return insecure_ || uid == own_uid_ || uid == uid_t{0} || !tokens()->empty();
}

/// All anonymous clients have the same name, but each address has its own limits.
Principal Access::anonymous(const net::Peer& peer) const {
    Principal principal{"anyone", false};
    principal.account = "anyone at " + peer.ip;
    principal.use = clients_.of(principal.account, false);
    return principal;
}

/// The caller has all permissions: the process that passes its calls on has checked them.
std::variant<Principal, Rejection> Access::by_name(const net::Peer& peer, std::string_view name) const {
    auto checked = by_user(peer);
    if (std::holds_alternative<Rejection>(checked)) return checked;
    Principal caller{net::percent_decode(name).value_or(""), true};
    if (caller.name.empty())
        return Rejection{401, "this server wants the name of the caller as token", RejectedFor::token};
    caller.use = clients_.of(caller.name, true);
    return caller;
}

std::variant<Principal, Rejection> Access::by_user(const net::Peer& peer) const {
    if (insecure_ && !loopback_ && !peer.unix_socket) return anonymous(peer);
    if (is_own_user(peer)) return user(*peer.uid, true);
    if (insecure_) return peer.uid ? user(*peer.uid, false) : anonymous(peer);
    if (peer.uid_error != 0) {
        return Rejection{503,
                         std::string("the server could not ask the kernel which user is calling (") +
                             std::strerror(peer.uid_error) +
                             "): try again later; if it stays so, give it a token file or use a Unix socket",
                         RejectedFor::overload};
    }
    return Rejection{403, "this server serves its own user only; start it with a token file to let others in",
                     RejectedFor::user};
}

namespace {

constexpr const char* kMethods = "GET, HEAD, POST, PUT, DELETE";
constexpr const char* kRequestHeaders =
    "Accept, Authorization, Content-Digest, Content-Encoding, Content-Range, Content-Type, Idempotency-Key, If-Match, "
    "If-None-Match, If-Range, Range, Request-Timeout, Shared-Tensor-Accept, Shared-Tensor-Coding, Shared-Tensor-Dtype, "
    "Shared-Tensor-Protocol, Shared-Tensor-Require, Shared-Tensor-Session, Shared-Tensor-Shape, Want-Content-Digest, "
    "X-Request-Id, traceparent";
constexpr const char* kResponseHeaders =
    "Accept-Ranges, Content-Digest, Content-Range, ETag, Retry-After, Server-Timing, "
    "Shared-Tensor-Coding, "
    "Shared-Tensor-Dtype, Shared-Tensor-Missing, Shared-Tensor-Shape, Shared-Tensor-Transport, Shared-Tensor-Upload, "
    "Shared-Tensor-Version, X-Request-Id, traceparent";
constexpr const char* kRemembered = "600";  // seconds

}  // namespace

std::optional<net::Response> answer_preflight(const net::RequestHead& head, const Access& access) {
    if (head.method != "OPTIONS") return std::nullopt;
    const auto origin = head.headers.find("Origin");
    if (!origin || !head.headers.find("Access-Control-Request-Method")) return std::nullopt;
    if (!access.is_allowed_origin(*origin) || access.check_place(head)) return std::nullopt;
    net::Response response;
    response.status = 204;
    let_page_read(head, access, response.headers);
    response.headers.add("Access-Control-Allow-Methods", kMethods);
    response.headers.add("Access-Control-Allow-Headers", kRequestHeaders);
    response.headers.add("Access-Control-Max-Age", kRemembered);
    if (head.headers.find("Access-Control-Request-Private-Network"))
        response.headers.add("Access-Control-Allow-Private-Network", "true");
    return response;
}

void let_page_read(const net::RequestHead& head, const Access& access, net::Headers& headers) {
    if (!access.allows_origins()) return;
    headers.add("Vary", "Origin");
    const auto origin = head.headers.find("Origin");
    if (!origin || !access.is_allowed_origin(*origin)) return;
    headers.add("Access-Control-Allow-Origin", std::string(*origin));
    headers.add("Access-Control-Expose-Headers", kResponseHeaders);
}

namespace {

/// Methods that every token may call: they concern only the caller's own calls, or list what can be called.
constexpr std::array<std::string_view, 6> kOfEverybody = {"task.", "lease.", "session.", "object.", "server.", "rpc."};

}  // namespace

bool Permissions::allows(std::string_view method) const {
    if (methods_.empty()) return true;
    const auto is_own = [&](std::string_view prefix) { return method.starts_with(prefix); };
    if (std::any_of(kOfEverybody.begin(), kOfEverybody.end(), is_own)) return true;
    return std::any_of(methods_.begin(), methods_.end(), [&](const std::string& allowed) {
        if (!allowed.ends_with('*')) return method == allowed;
        return method.starts_with(std::string_view(allowed).substr(0, allowed.size() - 1));
    });
}

bool Permissions::names(std::string_view method) const { return !methods_.empty() && allows(method); }

std::string reason_against(std::string_view method) {
    return "this token may not call " + std::string(method) + ": its line in the token file allows other methods";
}

namespace {

constexpr std::chrono::minutes kKept{10};  // a client that is away for longer starts with a new rate limit

std::size_t or_all(std::size_t limit) { return limit > 0 ? limit : std::numeric_limits<std::size_t>::max(); }

}  // namespace

std::shared_ptr<ClientUse> Clients::of(const std::string& who, bool is_own) {
    const SteadyTime now = real_clock().now();
    return clients_.with([&](auto& clients) {
        Entry& entry = clients[who];
        if (entry.use == nullptr) {
            const auto most = [&](std::size_t limit) { return or_all(is_own ? 0 : limit); };
            entry.use = std::make_shared<ClientUse>(ClientUse::Limits{
                limits_.requests_per_second, most(limits_.bytes_in_flight), most(limits_.connections),
                most(limits_.sessions), most(limits_.channels), most(limits_.segments), most(limits_.streams)});
        }
        entry.last = now;
        return entry.use;
    });
}

void Clients::sweep() {
    const SteadyTime before = real_clock().now() - kKept;
    clients_.with([&](auto& clients) {
        std::erase_if(clients, [&](const auto& client) {
            const ClientUse& use = *client.second.use;
            const bool has_places =
                use.connections->used() + use.sessions.used() + use.channels.used() + use.streams.used() > 0;
            return client.second.last < before && client.second.use.use_count() == 1 && !has_places;
        });
    });
}

}  // namespace shared_tensor::server
