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

/// TLS on a Stream: everything in which an encrypted connection differs from a plain one. One thread may read while
/// another thread writes.
///
/// Encrypted bytes that do not fit into the socket wait in `sealed`, up to a bound. Then write() does not count the
/// last of its bytes, so its caller calls again until nothing waits. So OpenSSL never gets the same bytes twice.
class TlsSession {
public:
    /// `ssl` knows whether it is server or client. `plain_answer` goes to clients without TLS; null: no answer.
    TlsSession(SslPointer ssl, const std::string* plain_answer);
    TlsSession(const TlsSession&) = delete;
    TlsSession& operator=(const TlsSession&) = delete;
    ~TlsSession();
    /// The stream calls this once.
    void attach(Stream& stream) { pipe_.stream = &stream; }

    // As in Stream:
    StreamResult read(void* to, std::size_t size, Stream::Wait wait);
    StreamResult write(std::span<const iovec> parts);
    bool holds_bytes() const;
    bool awaits_rest() const;
    std::optional<PeerCertificate> certificate() const;
    /// Tells the other side that no more bytes come.
    void finish();
    /// Tells the other side nothing at the end.
    void abandon();

    /// One step of a client's handshake.
    enum class Step { done, reads, writes, failed };
    Step shake_hands();
    /// Why the last step failed: OpenSSL's text, and whether the other side's certificate was the reason.
    struct Failure {
        std::string text;
        bool untrusted = false;
        bool not_tls = false;
    };
    Failure failure() const;

    /// Marks the certificate of the other side as bad and goes on, so that the answer to a request can say so.
    static int note_bad_certificate(int is_good, X509_STORE_CTX* store);

private:
    /// The BIO that OpenSSL reads from and writes to.
    struct Pipe {
        Stream* stream = nullptr;
        Stream::Wait wait = Stream::Wait::none;  ///< of the next read
        bool ended = false, broken = false;
        std::string sealed;    ///< encrypted, not sent
        std::size_t sent = 0;  ///< bytes of `sealed` that are sent
    };
    static int pipe_read(BIO* bio, char* to, int size);
    static int pipe_write(BIO* bio, const char* from, int size);
    static long pipe_control(BIO* bio, int command, long number, void* pointer);
    static const BIO_METHOD* pipe_method();

    bool send_sealed();
    std::size_t seal_some(std::span<const iovec> parts, std::size_t skipped);
    bool seal(const void* from, std::size_t size);
    StreamResult read_status(int result);
    void send_close_notify();

    mutable std::mutex mutex_;  // guards all below
    Pipe pipe_;
    SslPointer ssl_;
    const std::string* plain_answer_;
    bool owed_ = false;  // the first byte of the next write() is in `sealed` already
    bool failed_ = false, sent_close_notify_ = false, started_ = false;
    bool holds_ = false;  // the last read() was full, and OpenSSL has more bytes
};

}  // namespace shared_tensor::net
