#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <shared_tensor/server.hpp>

#include "base/concurrency/clock.hpp"
#include "base/system/files.hpp"
#include "net/stream/tls.hpp"
#include "server/auth/access.hpp"

namespace shared_tensor::server {

/// The files of tokens, certificates and keys. They are read at the start, and again when they change. A changed file
/// that cannot be used changes nothing, and is logged. Not thread-safe.
class Credentials {
public:
    /// The tokens of the options and of the token file. Throws std::invalid_argument for a file that cannot be used.
    static std::vector<AccessToken> tokens_of(const ServerOptions& options);
    /// Null for a server without TLS. Throws std::invalid_argument for files that cannot be used.
    static std::shared_ptr<const net::TlsServer> tls_of(const ServerOptions& options);

    /// Watches the files from now on. Make it before they are first read, so that no change is missed. `options` must
    /// outlive it.
    explicit Credentials(const ServerOptions& options);

    using UseTls = std::function<void(std::shared_ptr<const net::TlsServer>)>;
    /// Reads changed files again; checks for changes at most once a second. Returns true if tokens were revoked.
    bool sweep(SteadyTime now, Access& access, const UseTls& use_tls);

private:
    const ServerOptions& options_;
    FileWatch tokens_, tls_;
    SteadyTime looked_{};
};

/// Reads the tokens of a file. Each line is NAME:SECRET, followed by :admin or :allow=METHOD,PREFIX.* or both; a line
/// that begins with '#' is a comment. A secret contains no colon, and each name needs a secret of its own. Other users
/// must not be able to read the file. Throws std::invalid_argument that names the file and the line, and shows no
/// secret.
std::vector<AccessToken> read_token_file(const std::string& path);

}  // namespace shared_tensor::server
