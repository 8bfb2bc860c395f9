#include "tls_peer.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <stdexcept>
#include <utility>

#include "base/bytes/check.hpp"

namespace shared_tensor::test {

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

std::string RawTls::seal_each(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts)
        all += seal(text);
    return all;
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

std::string RawTls::read_to_end() {
    std::string all;
    while (true) {
        const std::string some = read_some();
        if (some.empty()) return all;
        all += some;
    }
}

std::string RawTls::read_through(std::string_view end) {
    std::string all;
    while (all.find(end) == std::string::npos) {
        const std::string some = read_some();
        if (some.empty()) return {};
        all += some;
    }
    return all;
}

void RawTls::send_close_notify() {
    SSL_shutdown(ssl_.get());
    socket_.send(to_send());
}

SafeClient::SafeClient(RawClient socket) : RawClient(UniqueFd()), tls_(std::move(socket)) {
    if (!tls_.shake_hands()) throw std::runtime_error("no TLS");
}

/// An end that was not announced is the end of nothing.
bool SafeClient::fill() {
    const std::string some = tls_.read_some();
    input_ += some;
    if (some.empty() && !tls_.ended_well()) errno = EAGAIN;
    return !some.empty();
}

std::unique_ptr<RawClient> EitherServer::raw_client() const {
    if (has_tls_) return std::make_unique<SafeClient>(RawClient(server.port()));
    return std::make_unique<RawClient>(server.port());
}

RawClient narrow_client(int port, int receive_buffer, const std::string& ip) {
    UniqueFd fd(SHARED_TENSOR_CHECK_ERRNO(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    const timeval limit{30, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (receive_buffer > 0) ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, ip.c_str(), &address.sin_addr);
    const auto* place = reinterpret_cast<const sockaddr*>(&address);
    SHARED_TENSOR_CHECK_ERRNO(::bind(fd.get(), place, sizeof address), "bind");
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    SHARED_TENSOR_CHECK_ERRNO(::connect(fd.get(), place, sizeof address), "connect");
    return RawClient(std::move(fd));
}

}  // namespace shared_tensor::test
