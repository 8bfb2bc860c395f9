#include "server/auth/credentials.hpp"

#include <stdexcept>

#include "base/log/log.hpp"
#include "server/auth/token_file.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::chrono::seconds kLookEvery{1};

}  // namespace

std::vector<AccessToken> Credentials::tokens_of(const ServerOptions& options) {
    std::vector<AccessToken> tokens = options.tokens;
    if (options.token_file.empty()) return tokens;
    for (AccessToken& token : read_token_file(options.token_file))
        tokens.push_back(std::move(token));
    return tokens;
}

std::shared_ptr<const net::TlsServer> Credentials::tls_of(const ServerOptions& options) {
    const TlsOptions& files = options.tls;
    if (files.certificate.empty() != files.key.empty())
        throw std::invalid_argument("TLS needs both a certificate and its key");
    if (files.certificate.empty()) {
        if (!files.authorities.empty())
            throw std::invalid_argument("certificates of clients need TLS: give the server a certificate and its key");
        return nullptr;
    }
    return net::TlsServer::load(files);
}

Credentials::Credentials(const ServerOptions& options)
    : options_(options),
      tokens_({options.token_file}),
      tls_({options.tls.certificate, options.tls.key, options.tls.authorities}) {}

bool Credentials::sweep(SteadyTime now, Access& access, const UseTls& use_tls) {
    if (now - looked_ < kLookEvery) return false;
    looked_ = now;
    bool revoked = false;
    const auto reload = [](const char* what, auto load) {
        try {
            load();
            log::info("the ", what, " changed, and was read again");
        } catch (const std::exception& error) {
            log::error("the ", what, " changed and cannot be used; the earlier one stays in use: ", error.what());
        }
    };
    if (tokens_.changed()) reload("token file", [&] { revoked = access.use_tokens(tokens_of(options_)); });
    if (tls_.changed()) reload("TLS certificate", [&] { use_tls(tls_of(options_)); });
    return revoked;
}

}  // namespace shared_tensor::server
