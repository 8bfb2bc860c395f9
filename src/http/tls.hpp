#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "http/wire.hpp"
#include "util/process_fd.hpp"

// TLS 1.3 by OpenSSL. What is configured is read once, when it is loaded, so that a file which changes meanwhile
// spoils nothing; connections keep what they began with.

using SSL_CTX = struct ssl_ctx_st;

namespace shared_tensor::http {

struct FreeTlsContext {
    void operator()(SSL_CTX* context) const;
};
using TlsContext = std::unique_ptr<SSL_CTX, FreeTlsContext>;

/// The server's side. Thread safety: all methods from any thread.
class TlsServer {
public:
    /// PEM files.
    struct Files {
        std::string certificate;  ///< the server's, then the chain below the root
        std::string key;          ///< of that certificate; readable by its owner and group only
        /// Certificates of clients are asked for, and held against these authorities (Wire::certificate()); empty: none
        /// is asked for.
        std::string client_ca;
    };
    /// Throws std::invalid_argument that names the file and what is wrong with it.
    static std::shared_ptr<const TlsServer> load(const Files& files);

    /// The handshake is part of the first read()s. A client that speaks plain HTTP gets `plain_answer`, which outlives
    /// the wire.
    std::unique_ptr<Wire> accept(ProcessFd fd, const std::string& plain_answer) const;

private:
    explicit TlsServer(TlsContext context) : context_(std::move(context)) {}
    TlsContext context_;
};

/// The client's side. Thread safety: all methods from any thread.
class TlsClient {
public:
    /// PEM files, each may be empty.
    struct Files {
        std::string ca;           ///< authorities that are trusted instead of those of the system
        std::string certificate;  ///< the client's own, with its chain
        std::string key;          ///< of that certificate
    };
    /// Throws std::invalid_argument that names the file and what is wrong with it.
    static std::shared_ptr<const TlsClient> load(const Files& files);

    /// Shakes hands with the server at `fd`, whose certificate must be good for `host`, a name or an address. Blocks
    /// until `deadline` at most. Throws TransportError of kind untrusted, timeout, broken or protocol.
    std::unique_ptr<Wire> connect(ProcessFd fd, const std::string& host,
                                  std::chrono::steady_clock::time_point deadline) const;

private:
    explicit TlsClient(TlsContext context) : context_(std::move(context)) {}
    TlsContext context_;
};

}  // namespace shared_tensor::http
