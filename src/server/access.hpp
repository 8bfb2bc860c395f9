#pragma once

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <shared_tensor/server.hpp>

#include "http/message.hpp"
#include "server/principal.hpp"

namespace shared_tensor::server {

/// Why a request is turned away before anything of its body is read.
struct Refusal {
    int status;          ///< 401 or 403
    std::string reason;  ///< says what to do
};

/// Decides who may speak: Host and Origin (DNS rebinding, foreign pages), then token, or the peer's user.
/// Thread-safe.
class Access {
public:
    /// Throws std::invalid_argument when the options would let strangers in.
    explicit Access(const ServerOptions& options);

    /// Known once the server is bound: what Host may say.
    void set_port(int port) { port_.store(port); }

    std::variant<Principal, Refusal> check(const http::RequestHead& head) const;
    /// The other end of the local channel; `token` is empty where it showed none.
    std::variant<Principal, Refusal> check_local(uid_t uid, std::string_view token) const;

private:
    bool host_is_ours(std::string_view host) const;
    std::variant<Principal, Refusal> by_token(const std::optional<std::string_view>& secret, const char* how) const;
    std::variant<Principal, Refusal> by_user(const http::Peer& peer) const;

    std::vector<AccessToken> tokens_;
    std::vector<std::string> hosts_;
    std::vector<std::string> origins_;
    bool loopback_;
    bool insecure_;
    uid_t own_uid_;
    std::atomic<int> port_;
};

/// Whether `host` is a loopback address or "localhost".
bool is_loopback_host(std::string_view host);

}  // namespace shared_tensor::server
