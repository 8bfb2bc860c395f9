#include "net/stream/tls.hpp"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>

#include "net/client/client.hpp"
#include "net/stream/tls_stream.hpp"

namespace shared_tensor::net {

namespace {

constexpr std::array<unsigned char, 9> kHttp11{8, 'h', 't', 't', 'p', '/', '1', '.', '1'};  // RFC 7301, section 3.1
constexpr std::size_t kReadAhead = 64 << 10;

[[noreturn]] void reject(const std::string& path, const std::string& why) {
    throw std::invalid_argument(path + ": " + why);
}

std::string last_error() {
    const char* text = ERR_reason_error_string(ERR_peek_last_error());
    return text != nullptr ? text : "unknown error";
}

TlsContext make_context(const SSL_METHOD* method) {
    ERR_clear_error();
    TlsContext context(SSL_CTX_new(method));
    if (!context) throw std::bad_alloc();
    SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
    SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context.get(), 1);
    SSL_CTX_set_default_read_buffer_len(context.get(), kReadAhead);
    // A key with a pass phrase is an error. Without this callback OpenSSL would ask for it at a terminal.
    SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return 0; });
    return context;
}

void check_readable(const std::string& path) {
    if (std::FILE* file = std::fopen(path.c_str(), "re")) {
        std::fclose(file);
    } else {
        reject(path, std::string("cannot be read: ") + std::strerror(errno));
    }
}

void check_mode_of_key(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) reject(path, std::string("cannot be read: ") + std::strerror(errno));
    if ((status.st_mode & 037) != 0) reject(path, "others may read this key: chmod 600 it");
}

void use_identity(SSL_CTX* context, const std::string& certificate, const std::string& key) {
    check_readable(certificate);
    check_mode_of_key(key);
    check_readable(key);
    if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1)
        reject(certificate, "no certificate in PEM form (" + last_error() + ")");
    if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1)
        reject(key, "not a private key in PEM form without a pass phrase, or not the key of " + certificate + " (" +
                        last_error() + ")");
    if (SSL_CTX_check_private_key(context) != 1) reject(key, "is not the key of " + certificate);
}

void trust(SSL_CTX* context, const std::string& authorities) {
    check_readable(authorities);
    if (SSL_CTX_load_verify_locations(context, authorities.c_str(), nullptr) != 1)
        reject(authorities, "holds no certificates in PEM form (" + last_error() + ")");
}

int choose_http(SSL*, const unsigned char** chosen, unsigned char* chosen_size, const unsigned char* offered,
                unsigned offered_size, void*) {
    unsigned char* found = nullptr;
    if (SSL_select_next_proto(&found, chosen_size, kHttp11.data(), kHttp11.size(), offered, offered_size) !=
        OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_NOACK;
    }
    *chosen = found;
    return SSL_TLSEXT_ERR_OK;
}

SslPointer make_ssl(SSL_CTX* context) {
    SslPointer ssl(SSL_new(context));
    if (!ssl) throw std::bad_alloc();
    return ssl;
}

bool is_address(const std::string& host) {
    std::array<unsigned char, sizeof(in6_addr)> unused{};
    return ::inet_pton(AF_INET, host.c_str(), unused.data()) == 1 ||
           ::inet_pton(AF_INET6, host.c_str(), unused.data()) == 1;
}

/// RFC 6066, section 3: the server name extension takes no address.
void expect_host(SSL* ssl, const std::string& host) {
    int set = 0;
    if (is_address(host)) {
        set = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str());
    } else {
        // SSL_set_tlsext_host_name() without its C cast; OpenSSL copies the name
        SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(host.c_str()));
        set = SSL_set1_host(ssl, host.c_str());
    }
    if (set != 1) throw std::bad_alloc();  // without a host, any certificate would be accepted
}

}  // namespace

void FreeTlsContext::operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

std::shared_ptr<const TlsServer> TlsServer::load(const TlsOptions& files) {
    TlsContext context = make_context(TLS_server_method());
    use_identity(context.get(), files.certificate, files.key);
    SSL_CTX_set_alpn_select_cb(context.get(), &choose_http, nullptr);
    // No tickets: a resumed session has no certificate to check.
    SSL_CTX_set_num_tickets(context.get(), 0);
    SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
    if (!files.authorities.empty()) {
        trust(context.get(), files.authorities);
        SSL_CTX_set_client_CA_list(context.get(), SSL_load_client_CA_file(files.authorities.c_str()));
        SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, &TlsStream::note_bad_certificate);
    }
    return std::shared_ptr<const TlsServer>(new TlsServer(std::move(context)));
}

std::unique_ptr<Stream> TlsServer::accept(ProcessFd fd, const std::string& plain_answer) const {
    SslPointer ssl = make_ssl(context_.get());
    SSL_set_accept_state(ssl.get());
    return std::make_unique<TlsStream>(std::move(fd), std::move(ssl), &plain_answer);
}

std::shared_ptr<const TlsClient> TlsClient::load(const TlsOptions& files) {
    TlsContext context = make_context(TLS_client_method());
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    if (files.authorities.empty()) {
        SSL_CTX_set_default_verify_paths(context.get());
    } else {
        trust(context.get(), files.authorities);
    }
    if (!files.certificate.empty()) use_identity(context.get(), files.certificate, files.key);
    SSL_CTX_set_alpn_protos(context.get(), kHttp11.data(), kHttp11.size());
    return std::shared_ptr<const TlsClient>(new TlsClient(std::move(context)));
}

std::unique_ptr<Stream> TlsClient::connect(ProcessFd fd, const std::string& host,
                                           std::chrono::steady_clock::time_point deadline,
                                           const std::stop_token& stop) const {
    const auto begin = [&] {
        const NoFork meanwhile;
        SslPointer ssl = make_ssl(context_.get());
        SSL_set_connect_state(ssl.get());
        expect_host(ssl.get(), host);
        return std::make_unique<TlsStream>(std::move(fd), std::move(ssl), nullptr);
    };
    auto stream = begin();
    const std::stop_callback stopped(stop, [bytes = stream.get()] { bytes->shutdown(); });
    const auto shake_hands = [&] {
        const NoFork meanwhile;  // a handshake takes locks of the context, of which children have copies
        return stream->shake_hands(host);
    };
    while (const short wanted = shake_hands()) {
        if (wait_ready(stream->fd(), wanted, deadline) == 0)
            throw TransportError(TransportError::Kind::timeout, false,
                                 host + " did not finish the TLS handshake in time");
    }
    return stream;
}

}  // namespace shared_tensor::net
