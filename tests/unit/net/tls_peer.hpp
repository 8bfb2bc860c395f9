#pragma once

#include <openssl/ssl.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes/ids.hpp"
#include "net/client/client.hpp"
#include "net/stream/tls.hpp"
#include "raw_client.hpp"
#include "support/certificates.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {

/// An authority and what it vouches for, as files that go away with the test.
class TlsFiles {
public:
    TlsFiles() : authority_(wish_of_authority("our authority")), other_(wish_of_authority("another authority")) {
        std::filesystem::create_directory(folder_);
        authority_.write_certificate(path("ca.pem"));
        other_.write_certificate(path("other-ca.pem"));
        issue("server", {});
    }
    TlsFiles(const TlsFiles&) = delete;
    TlsFiles& operator=(const TlsFiles&) = delete;
    ~TlsFiles() { std::filesystem::remove_all(folder_); }

    std::string path(const std::string& name) const { return (folder_ / name).string(); }
    std::string ca() const { return path("ca.pem"); }
    std::string other_ca() const { return path("other-ca.pem"); }
    /// Writes NAME.pem and NAME.key.
    void issue(const std::string& name, const Certificate::Options& requested) const {
        write(name, requested, &authority_);
    }
    void issue_by_another(const std::string& name, const Certificate::Options& requested) const {
        write(name, requested, &other_);
    }
    void sign_by_itself(const std::string& name, const Certificate::Options& requested) const {
        write(name, requested, nullptr);
    }

    TlsOptions server_files(const std::string& name = "server") const {
        return {path(name + ".pem"), path(name + ".key"), ""};
    }
    std::shared_ptr<const net::TlsServer> tls(const std::string& name = "server") const {
        return net::TlsServer::load(server_files(name));
    }
    /// Trusts our authority, and shows that certificate if it is given one.
    std::shared_ptr<const net::TlsClient> client(const std::string& name = "") const {
        if (name.empty()) return net::TlsClient::load({.authorities = ca()});
        return net::TlsClient::load({path(name + ".pem"), path(name + ".key"), ca()});
    }
    net::Endpoint endpoint(int port, const std::string& host = "127.0.0.1") const {
        auto endpoint = net::Endpoint::parse("https://" + host + ":" + std::to_string(port));
        endpoint.tls_client = client();
        return endpoint;
    }
    net::ClientOptions client_options(int port) const {
        net::ClientOptions options;
        options.endpoint = endpoint(port);
        options.connect_timeout = std::chrono::seconds(30);
        return options;
    }

private:
    static Certificate::Options wish_of_authority(const std::string& name) {
        Certificate::Options requested;
        requested.name = name;
        requested.alternatives.clear();
        requested.is_authority = true;
        return requested;
    }
    void write(const std::string& name, const Certificate::Options& requested, const Certificate* issuer) const {
        const Certificate made(requested, issuer);
        made.write_certificate(path(name + ".pem"));
        made.write_key(path(name + ".key"));
    }

    const std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("st-tls-" + random_hex(8));
    const Certificate authority_, other_;
};

inline net::ServerOptions with_tls(std::shared_ptr<const net::TlsServer> tls) {
    net::ServerOptions options;
    options.tls = std::move(tls);
    return options;
}

/// The real server, plain or with TLS, and what its clients need to know.
struct EitherServer : TlsFiles, TestServer {
    explicit EitherServer(bool has_tls, net::ServerOptions options = {})
        : TestServer(with(std::move(options), has_tls ? tls() : nullptr)), has_tls_(has_tls) {
        handler.plan.max_bytes = std::size_t{1} << 30;
    }
    net::ClientOptions options_of_client() const {
        return has_tls_ ? client_options(server.port()) : options_for(server.port());
    }
    /// A raw client after its handshake.
    std::unique_ptr<RawClient> raw_client() const;

private:
    static net::ServerOptions with(net::ServerOptions options, std::shared_ptr<const net::TlsServer> tls) {
        options.tls = std::move(tls);
        return options;
    }
    const bool has_tls_;
};

struct SafeServer : EitherServer {
    explicit SafeServer(net::ServerOptions options = {}) : EitherServer(true, std::move(options)) {}
};

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
    /// A record of its own for each.
    std::string seal_each(const std::vector<std::string>& texts);
    bool send(std::string_view text) { return socket_.send(seal(text)); }
    /// What comes next, at most so many bytes; empty at the end.
    std::string read_some(std::size_t most = 65536);
    std::string read_to_end();
    /// What comes up to and with `end`, and what came with it; empty when that does not come.
    std::string read_through(std::string_view end);
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

/// A raw client under TLS: what it sends is encrypted, what it reads is decrypted.
class SafeClient final : public RawClient {
public:
    /// Throws when the handshake fails.
    explicit SafeClient(RawClient socket);
    bool send(std::string_view text) override { return tls_.send(text); }

private:
    bool fill() override;
    RawTls tls_;
};

/// A connection whose system takes few bytes at once; from `ip`, which is one of loopback's.
RawClient narrow_client(int port, int receive_buffer, const std::string& ip = "127.0.0.1");
inline RawClient client_from(const std::string& ip, int port) { return narrow_client(port, 0, ip); }

}  // namespace shared_tensor::test
