#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

#include <shared_tensor/limits.hpp>

#include "base/system/fork.hpp"
#include "net/stream/stream.hpp"

// TLS 1.3 by OpenSSL. Files are read once, by load(). A later change of a file has no effect on existing connections.

using SSL_CTX = struct ssl_ctx_st;

namespace shared_tensor::net {

struct FreeTlsContext {
    void operator()(SSL_CTX* context) const;
};
using TlsContext = std::unique_ptr<SSL_CTX, FreeTlsContext>;

/// The server's side. Thread safety: all methods from any thread.
class TlsServer {
public:
    /// With authorities, the server asks clients for certificates and checks them (Stream::certificate()). Throws
    /// std::invalid_argument that names the file and what is wrong with it.
    static std::shared_ptr<const TlsServer> load(const TlsOptions& files);

    /// The first calls of read() do the handshake. A client that speaks plain HTTP gets `plain_answer`, which must
    /// outlive the stream.
    std::unique_ptr<Stream> accept(ProcessFd fd, const std::string& plain_answer) const;

private:
    explicit TlsServer(TlsContext context) : context_(std::move(context)) {}
    TlsContext context_;
};

/// The client's side. Thread safety: all methods from any thread.
class TlsClient {
public:
    /// Each file may be empty. Throws std::invalid_argument that names the file and what is wrong with it.
    static std::shared_ptr<const TlsClient> load(const TlsOptions& files);

    /// Does the handshake with the server at `fd`. Its certificate must be valid for `host`, a name or an address.
    /// Blocks until `deadline` at most, or until `stop` is requested. Throws TransportError of kind untrusted, timeout,
    /// broken or protocol.
    std::unique_ptr<Stream> connect(ProcessFd fd, const std::string& host,
                                    std::chrono::steady_clock::time_point deadline, const std::stop_token& stop) const;

private:
    explicit TlsClient(TlsContext context) : context_(std::move(context)) {}
    TlsContext context_;
};

}  // namespace shared_tensor::net
