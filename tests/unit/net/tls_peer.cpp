#include "tls_peer.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <stdexcept>

namespace shared_tensor::test {

namespace {

Certificate::Options authority_called(const std::string& name) {
    Certificate::Options requested;
    requested.name = name;
    requested.alternatives.clear();
    requested.is_authority = true;
    return requested;
}

}  // namespace

TlsFiles::TlsFiles() : authority_(authority_called("our authority")), other_(authority_called("another authority")) {
    authority_.write_certificate(ca());
    other_.write_certificate(other_ca());
    issue("server");
}

std::shared_ptr<const net::TlsClient> TlsFiles::client(const std::string& name) const {
    if (name.empty()) return net::TlsClient::load({.authorities = ca()});
    return net::TlsClient::load({file(name + ".pem"), file(name + ".key"), ca()});
}

net::Endpoint TlsFiles::endpoint(int port, const std::string& host) const {
    auto endpoint = net::Endpoint::parse("https://" + host + ":" + std::to_string(port));
    endpoint.tls_client = client();
    return endpoint;
}

void TlsFiles::write_both(const std::string& name, const Certificate::Options& requested,
                          const Certificate* issuer) const {
    const Certificate made(requested, issuer);
    made.write_certificate(file(name + ".pem"));
    made.write_key(file(name + ".key"));
}

const TlsFiles& tls_files() {
    static const TlsFiles files;
    return files;
}

RawTls::RawTls(RawClient socket, Context context)
    : socket_(std::move(socket)), context_(std::move(context)), ssl_(SSL_new(context_.get())) {
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    if (ssl_ == nullptr || in_ == nullptr || out_ == nullptr) throw std::bad_alloc();
    BIO_set_mem_eof_return(in_, -1);
    SSL_set_bio(ssl_.get(), in_, out_);
}

RawTls::RawTls(RawClient socket, int newest_version)
    : RawTls(std::move(socket), Context(SSL_CTX_new(TLS_client_method()))) {
    SSL_set_max_proto_version(ssl_.get(), newest_version);
    SSL_set_connect_state(ssl_.get());
}

RawTls::RawTls(RawClient socket, const TlsOptions& files)
    : RawTls(std::move(socket), Context(SSL_CTX_new(TLS_server_method()))) {
    if (SSL_use_certificate_file(ssl_.get(), files.certificate.c_str(), SSL_FILETYPE_PEM) != 1 ||
        SSL_use_PrivateKey_file(ssl_.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1)
        throw std::runtime_error("the server's certificate cannot be used");
    SSL_set_accept_state(ssl_.get());
}

std::string RawTls::to_send() {
    std::string bytes(BIO_ctrl_pending(out_), '\0');
    if (!bytes.empty()) BIO_read(out_, bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
}

bool RawTls::receive() {
    std::array<char, 65536> buffer;
    const ssize_t got = ::recv(socket_.fd(), buffer.data(), buffer.size(), 0);
    return got > 0 && BIO_write(in_, buffer.data(), static_cast<int>(got)) == got;
}

bool RawTls::shake_hands() {
    while (true) {
        const int result = SSL_do_handshake(ssl_.get());
        const bool goes_on = result != 1 && SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ;
        if (!socket_.send(to_send())) return false;
        if (result == 1) return true;
        if (!goes_on || !receive()) return false;
    }
}

std::string RawTls::hello() {
    SSL_do_handshake(ssl_.get());
    return to_send();
}

std::string RawTls::seal(std::string_view text) {
    if (!text.empty() && SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())) <= 0)
        throw std::runtime_error("cannot encrypt");
    return to_send();
}

std::string RawTls::read_some(std::size_t most) {
    std::string text(most, '\0');
    while (true) {
        const int got = SSL_read(ssl_.get(), text.data(), static_cast<int>(text.size()));
        if (got > 0) {
            text.resize(static_cast<std::size_t>(got));
            return text;
        }
        const int error = SSL_get_error(ssl_.get(), got);
        ended_well_ = error == SSL_ERROR_ZERO_RETURN;
        if (error != SSL_ERROR_WANT_READ || !receive()) return {};
    }
}

void RawTls::send_close_notify() {
    SSL_shutdown(ssl_.get());
    socket_.send(to_send());
}

SafeClient::SafeClient(RawTls tls) : RawClient(UniqueFd()), tls_(std::move(tls)) {
    if (!tls_.shake_hands()) throw std::runtime_error("no TLS");
}

bool SafeClient::send_each(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts)
        all += tls_.seal(text);
    return tls_.socket().send(all);
}

/// An end that was not announced is the end of nothing.
bool SafeClient::fill() {
    const std::string some = tls_.read_some();
    input_ += some;
    if (some.empty() && !tls_.ended_well()) errno = EAGAIN;
    return !some.empty();
}

}  // namespace shared_tensor::test
