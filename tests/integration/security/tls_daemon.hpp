#pragma once

#include <string>

#include <shared_tensor/client.hpp>

#include "support/certificates.hpp"
#include "support/daemon.hpp"

namespace shared_tensor::test {

/// An authority, and the certificate of a server on this host that it signed, as files.
class Authority {
public:
    Authority() {
        certificate_.write_certificate(ca());
        write_server(Certificate({}, &certificate_));
    }
    std::string ca() const { return folder_.file("ca.pem"); }
    std::string server_certificate() const { return folder_.file("server.pem"); }
    std::string server_key() const { return folder_.file("server.key"); }
    /// For a daemon with the server's certificate.
    Words options() const { return {"--tls-certificate", server_certificate(), "--tls-key", server_key()}; }
    void write_server(const Certificate& certificate) const {
        certificate.write_certificate(server_certificate());
        certificate.write_key(server_key());
    }
    Certificate sign(const std::string& name) const {
        return Certificate({name, "", false, -3600, 3600}, &certificate_);
    }
    const Certificate& certificate() const { return certificate_; }
    TemporaryFolder& folder() { return folder_; }

private:
    TemporaryFolder folder_;
    const Certificate certificate_{Certificate::Options{"Tests", "", true, -3600, 3600}};
};

/// A daemon with the example plugin that speaks https.
struct TlsDaemon {
    explicit TlsDaemon(const Words& options = {})
        : daemon(joined(joined({"--load", kExamplePlugin}, authority.options()), options)) {}

    std::string url() const { return "https://127.0.0.1:" + std::to_string(daemon.port()); }
    ClientOptions options() {
        ClientOptions options;
        options.url = url();
        options.tls.authorities = authority.ca();
        options.retry = no_retry();
        return options;
    }
    /// As on another host: no memory is shared.
    Client far_client(ClientOptions options) const {
        options.local_socket = "none";
        return Client(options);
    }
    Client far_client() { return far_client(options()); }

    Authority authority;
    Daemon daemon;
};

}  // namespace shared_tensor::test
