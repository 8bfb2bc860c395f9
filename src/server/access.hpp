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

#include "http/message.hpp"
#include "server/principal.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::server {

/// Why a request is turned away before anything of its body is read.
struct Refusal {
    int status;          ///< 401, 403, or 503 where it could not be found out who is asking
    std::string reason;  ///< says what to do
};

/// Decides who may speak: Host and Origin (DNS rebinding, foreign pages), then certificate, then token, or the peer's
/// user. Thread-safe.
class Access {
public:
    /// `tokens` instead of those of the options. Throws std::invalid_argument when the options would let strangers in.
    Access(const ServerOptions& options, std::vector<AccessToken> tokens, Clients& clients);

    /// Known once the server is bound: what Host may say.
    void set_port(int port) { port_.store(port); }

    /// Whoever showed a token that is not among these, or that allows something else now, is revoked; true when there
    /// is one. Throws std::invalid_argument, and changes nothing, for tokens that are none.
    bool use_tokens(std::vector<AccessToken> tokens);

    std::variant<Principal, Refusal> check(const http::RequestHead& head) const;
    /// The other end of the local channel; `token` is empty where it showed none.
    std::variant<Principal, Refusal> check_local(uid_t uid, std::string_view token) const;

    /// Whether a process of that user may connect to the local channel, where session.open decides.
    bool may_connect(uid_t uid) const;
    /// Whether the kernel says that it is the server's own user, or root. Does not look at a token.
    bool is_own_user(const http::Peer& peer) const { return peer.uid == own_uid_ || peer.uid == uid_t{0}; }

    /// Only whether Host and Origin are ones that may be: for what browsers ask beforehand (CORS).
    std::optional<Refusal> check_place(const http::RequestHead& head) const;
    bool is_allowed_origin(std::string_view origin) const;
    bool allows_origins() const { return !origins_.empty(); }

private:
    struct Token {
        AccessToken token;
        std::shared_ptr<Grant> grant;
    };
    using Tokens = std::vector<Token>;

    bool host_is_ours(std::string_view host) const;
    std::variant<Principal, Refusal> by_token(const Tokens& tokens, const std::optional<std::string_view>& secret,
                                              const char* how) const;
    std::variant<Principal, Refusal> by_user(const http::Peer& peer) const;
    std::shared_ptr<const Tokens> tokens() const;
    Principal user(uid_t uid, bool is_own) const;
    Principal anyone(const http::Peer& peer) const;

    Clients& clients_;
    Guarded<std::shared_ptr<const Tokens>> tokens_;
    std::vector<std::string> hosts_;
    std::vector<std::string> origins_;
    bool loopback_;
    bool insecure_;
    bool wants_certificates_;
    uid_t own_uid_;
    std::atomic<int> port_;
};

/// Whether `host` is a loopback address or "localhost".
bool is_loopback_host(std::string_view host);

}  // namespace shared_tensor::server
