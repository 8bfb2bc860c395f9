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
    std::string ca() { return ca_; }
    std::string server_certificate() { return server_; }
    std::string server_key() { return server_key_; }
    void write_server(const Certificate& certificate) {
        certificate.write_certificate(server_);
        certificate.write_key(server_key_);
    }
    Certificate sign(const std::string& name) const {
        return Certificate({name, "", false, -3600, 3600}, &certificate_);
    }
    const Certificate& certificate() const { return certificate_; }
    TemporaryFolder& folder() { return folder_; }

private:
    TemporaryFolder folder_;
    const std::string ca_ = folder_.file("ca.pem"), server_ = folder_.file("server.pem"),
                      server_key_ = folder_.file("server.key");
    const Certificate certificate_{Certificate::Options{"Tests", "", true, -3600, 3600}};
};

/// A daemon with the example plugin that speaks https.
struct TlsDaemon {
    explicit TlsDaemon(const Words& options = {}) : daemon(with_files(options)) {}

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

private:
    Words with_files(const Words& options) {
        Words words{"--load",    kExamplePlugin,        "--tls-certificate", authority.server_certificate(),
                    "--tls-key", authority.server_key()};
        words.insert(words.end(), options.begin(), options.end());
        return words;
    }
};

}  // namespace shared_tensor::test
