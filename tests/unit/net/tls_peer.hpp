#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/client/client.hpp"
#include "net/stream/tls.hpp"
#include "raw_client.hpp"
#include "support/certificates.hpp"
#include "support/temporary_folder.hpp"

namespace shared_tensor::test {

/// An authority and what it vouches for, as files.
class TlsFiles : public TemporaryFolder {
public:
    TlsFiles();
    std::string ca() const { return file("ca.pem"); }
    std::string other_ca() const { return file("other-ca.pem"); }
    /// Writes NAME.pem and NAME.key.
    void issue(const std::string& name, const Certificate::Options& requested = {}) const {
        write_both(name, requested, &authority_);
    }
    void issue_by_another(const std::string& name, const Certificate::Options& requested = {}) const {
        write_both(name, requested, &other_);
    }
    void sign_by_itself(const std::string& name) const { write_both(name, {}, nullptr); }

    TlsOptions server_files(const std::string& name = "server") const {
        return {file(name + ".pem"), file(name + ".key"), ""};
    }
    std::shared_ptr<const net::TlsServer> tls(const std::string& name = "server") const {
        return net::TlsServer::load(server_files(name));
    }
    /// Trusts our authority, and shows that certificate if it is given one.
    std::shared_ptr<const net::TlsClient> client(const std::string& name = "") const;
    net::Endpoint endpoint(int port, const std::string& host = "127.0.0.1") const;
    net::ClientOptions client_options(int port) const {
        net::ClientOptions options;
        options.endpoint = endpoint(port);
        options.connect_timeout = std::chrono::seconds(30);
        return options;
    }

private:
    void write_both(const std::string& name, const Certificate::Options& requested, const Certificate* issuer) const;
    const Certificate authority_, other_;
};

/// Those of this process.
const TlsFiles& tls_files();

/// One side of TLS made of plain OpenSSL calls on memory: a test decides which of its bytes the other side gets. Shares
/// no code with the project, and believes every certificate.
class RawTls {
public:
    /// A client.
    explicit RawTls(RawClient socket, int newest_version = TLS1_3_VERSION);
    /// A server.
    RawTls(RawClient socket, const TlsOptions& files);

    RawClient& socket() { return socket_; }
    SSL* ssl() { return ssl_.get(); }
    /// False when the other side does not want to.
    bool shake_hands();
    /// What a client says first.
    std::string hello();
    /// `text` encrypted, not sent.
    std::string seal(std::string_view text);
    /// What comes next, at most so many bytes; empty at the end.
    std::string read_some(std::size_t most = 65536);
    /// The end was announced (close_notify), so nothing was cut off.
    bool ended_well() const { return ended_well_; }
    /// Announces the end.
    void send_close_notify();

private:
    struct Free {
        void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
        void operator()(SSL* ssl) const { SSL_free(ssl); }
    };
    using Context = std::unique_ptr<SSL_CTX, Free>;
    RawTls(RawClient socket, Context context);
    bool receive();
    std::string to_send();

    RawClient socket_;
    Context context_;
    std::unique_ptr<SSL, Free> ssl_;
    BIO *in_ = nullptr, *out_ = nullptr;  // of ssl_
    bool ended_well_ = false;
};

/// A raw client, or connection of a raw server, under TLS: what it sends is encrypted, what it reads is decrypted. One
/// thread at a time.
class SafeClient final : public RawClient {
public:
    /// Throws when the handshake fails.
    explicit SafeClient(RawTls tls);
    explicit SafeClient(RawClient socket) : SafeClient(RawTls(std::move(socket))) {}
    RawTls& tls() { return tls_; }
    bool send(std::string_view text) override { return tls_.socket().send(tls_.seal(text)); }
    bool send_each(const std::vector<std::string>& texts) override;
    void reset() override { tls_.socket().reset(); }
    void close() override { tls_.socket().close(); }

private:
    bool fill() override;
    RawTls tls_;
};

}  // namespace shared_tensor::test
