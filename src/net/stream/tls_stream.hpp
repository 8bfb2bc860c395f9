#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "net/stream/stream.hpp"

namespace shared_tensor::net {

struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using SslPointer = std::unique_ptr<SSL, FreeSsl>;

/// A Stream with TLS: everything in which an encrypted connection differs from a plain one.
///
/// Encrypted bytes that do not fit into the socket wait in `sealed_`, up to a bound. Then write() does not count the
/// last of its bytes, so its caller calls again until nothing waits. So OpenSSL never gets the same bytes twice.
class TlsStream final : public Stream {
public:
    /// `ssl` knows whether it is server or client. `plain_answer` goes to clients without TLS; null: no answer.
    TlsStream(ProcessFd fd, SslPointer ssl, const std::string* plain_answer);
    ~TlsStream() override;

    StreamResult read(void* to, std::size_t size, Wait wait) override;
    StreamResult write(std::span<const iovec> parts) override;
    void finish_writing() override;
    void abandon_unsent() override;
    bool is_tls() const override { return true; }
    bool holds_bytes() const override;
    bool awaits_rest() const override;
    std::optional<PeerCertificate> certificate() const override;

    /// One step of a client's handshake with `host`. Returns what poll() has to wait for before the next step; 0 after
    /// the last one. Throws TransportError of kind untrusted, protocol or broken.
    short shake_hands(const std::string& host);

    /// Marks the certificate of the other side as bad and goes on, so that the answer to a request can say so.
    static int note_bad_certificate(int is_good, X509_STORE_CTX* store);

private:
    // The BIO that OpenSSL reads from and writes to:
    static int pipe_read(BIO* bio, char* to, int size);
    static int pipe_write(BIO* bio, const char* from, int size);
    static long pipe_control(BIO* bio, int command, long number, void* pointer);
    static const BIO_METHOD* pipe_method();

    bool is_ready() const { return SSL_is_init_finished(ssl_.get()) == 1; }
    bool send_sealed();
    std::size_t seal_some(std::span<const iovec> parts, std::size_t skipped);
    bool seal(const void* from, std::size_t size);
    StreamResult read_status(int result);
    void send_close_notify();
    [[noreturn]] void fail_handshake(const std::string& host) const;

    mutable std::mutex mutex_;  // guards all below
    SslPointer ssl_;
    const std::string* plain_answer_;
    Wait wait_ = Wait::none;               // of the next read of the socket
    bool ended_ = false, broken_ = false;  // the socket
    std::string sealed_;                   // encrypted, not sent
    std::size_t sent_ = 0;                 // bytes of `sealed_` that are sent
    bool owed_ = false;                    // the first byte of the next write() is in `sealed_` already
    bool failed_ = false, sent_close_notify_ = false, started_ = false;
    bool holds_ = false;  // the last read() was full, and OpenSSL has more bytes
};

}  // namespace shared_tensor::net
