#pragma once

#include <functional>
#include <memory>

#include <shared_tensor/server.hpp>

#include "http/tls.hpp"
#include "server/access.hpp"
#include "util/clock.hpp"
#include "util/file_watch.hpp"

namespace shared_tensor::server {

/// The files that say who the server is and who may speak to it: read at the start, and again when they change. A file
/// that cannot be used then changes nothing, and is logged. Not thread-safe.
class Credentials {
public:
    /// Throws std::invalid_argument for files that cannot be used.
    static std::vector<AccessToken> tokens_of(const ServerOptions& options);
    /// Null for a server without TLS; throws the same.
    static std::shared_ptr<const http::TlsServer> tls_of(const ServerOptions& options);

    /// Looks at them from now on: made before they are read for the first time.
    explicit Credentials(const ServerOptions& options);

    using UseTls = std::function<void(std::shared_ptr<const http::TlsServer>)>;
    /// Looks at the files once a second at most; true when tokens were revoked.
    bool tend(SteadyTime now, Access& access, const UseTls& use_tls);

private:
    const ServerOptions& options_;
    FileWatch tokens_, tls_;
    SteadyTime looked_{};
};

}  // namespace shared_tensor::server
