#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <shared_tensor/server.hpp>

#include "base/concurrency/guarded.hpp"
#include "net/message/message.hpp"
#include "net/server/server.hpp"
#include "server/auth/principal.hpp"
#include "server/metrics/rejections.hpp"

namespace shared_tensor::server {

/// The rejection of a request. It is decided before any of the request's body is read.
struct Rejection {
    int status;          ///< 401, 403, or 503 if the kernel could not tell the client's user
    std::string reason;  ///< for people; says what to do
    RejectedFor why;     ///< for /metrics
};

/// Throws std::invalid_argument for tokens that are too short, or that have the same name or secret.
void check_tokens(const std::vector<AccessToken>& tokens);

/// The token of the header Authorization; none if it is missing, double, or has another scheme than Bearer.
std::optional<std::string_view> bearer(const net::Headers& headers);

/// The subprotocol of a WebSocket that web pages ask for.
inline constexpr std::string_view kSubprotocol = "shared-tensor";
/// The token of a WebSocket of a web page, which cannot send Authorization: the page offers the subprotocol
/// "shared-tensor.token.TOKEN" beside kSubprotocol. TOKEN is percent-encoded. None if there is not exactly one.
std::optional<std::string> token_of_page(const net::Headers& headers);

/// Whether the value of Host is an address, with or without a port. A name may be bound to any address by DNS.
bool is_address_host(std::string_view host);

/// Decides which clients are admitted. Checks Host and Origin (against DNS rebinding and foreign web pages), then the
/// certificate, then the token. Without tokens and certificates it checks the peer's user. Thread-safe.
class Access {
public:
    /// Uses `tokens` and ignores the tokens in `options`. Throws std::invalid_argument for invalid tokens or origins,
    /// and if the options would admit anonymous clients without --insecure.
    Access(const ServerOptions& options, std::vector<AccessToken> tokens, Clients& clients);

    /// Sets the port that Host must name. Called once the server is bound.
    void set_port(int port) { port_.store(port); }

    /// Replaces the tokens. Revokes the Permissions of each old token that is missing or changed; returns true if it
    /// revoked any. Throws std::invalid_argument for invalid tokens, and then changes nothing.
    bool use_tokens(std::vector<AccessToken> tokens);

    /// The principal of an HTTP request, or its rejection.
    std::variant<Principal, Rejection> check(const net::RequestHead& head) const;
    /// Checks a request for a file of the dashboard. It needs no token, because a browser that opens a page sends none.
    /// Null if it is admitted.
    std::optional<Rejection> check_page(const net::RequestHead& head) const;
    /// The principal of a client on the local channel, or its rejection. `token` is empty if the client sent none.
    std::variant<Principal, Rejection> check_local(uid_t uid, std::string_view token) const;

    /// Whether a process of that user may connect to the local channel. session.open then checks its token.
    bool may_connect(uid_t uid) const;
    /// Whether the kernel reports the server's own user, or root. Ignores tokens.
    bool is_own_user(const net::Peer& peer) const { return peer.uid == own_uid_ || peer.uid == uid_t{0}; }

    /// Checks only Host and Origin; null if they are allowed. For CORS preflight requests, which carry no token.
    std::optional<Rejection> check_place(const net::RequestHead& head) const;
    bool is_allowed_origin(std::string_view origin) const;
    bool allows_origins() const { return !origins_.empty(); }

private:
    struct Token {
        AccessToken token;
        std::shared_ptr<Permissions> grant;
    };
    using Tokens = std::vector<Token>;

    bool host_is_ours(std::string_view host) const;
    bool checks_host(const net::Peer& peer) const { return !peer.unix_socket && (loopback_ || !hosts_.empty()); }
    bool is_own_page(const net::RequestHead& head, std::string_view origin) const;
    std::optional<Rejection> check_certificate(const net::Peer& peer) const;
    std::variant<Principal, Rejection> by_token(const Tokens& tokens, const std::optional<std::string_view>& secret,
                                                const char* how) const;
    std::variant<Principal, Rejection> by_user(const net::Peer& peer) const;
    std::variant<Principal, Rejection> by_name(const net::Peer& peer, std::string_view name) const;
    std::shared_ptr<const Tokens> tokens() const;
    Principal user(uid_t uid, bool is_own) const;
    Principal anonymous(const net::Peer& peer) const;

    Clients& clients_;
    Guarded<std::shared_ptr<const Tokens>> tokens_;
    std::vector<std::string> hosts_;
    std::vector<std::string> origins_;
    bool loopback_;
    bool insecure_;
    bool wants_certificates_;
    bool has_tls_;
    bool has_pages_;
    bool named_callers_;
    uid_t own_uid_;
    std::atomic<int> port_;
};

/// Whether `host` is "localhost", ::1, or an IPv4 address 127.a.b.c. False for all other names.
bool is_loopback_host(std::string_view host);

// Headers that let a browser's page of another origin read a response (the Fetch standard, "CORS protocol"). Only
// responses to origins that the operator named have these headers.

/// The response to a preflight request of an allowed origin; nullopt for any other request.
std::optional<net::Response> answer_preflight(const net::RequestHead& head, const Access& access);

/// Adds the headers of a response that let a page of the request's origin read it, if that origin is allowed.
void let_page_read(const net::RequestHead& head, const Access& access, net::Headers& headers);

}  // namespace shared_tensor::server
