#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "http/wire.hpp"

namespace shared_tensor::http {

struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using SslPointer = std::unique_ptr<SSL, FreeSsl>;

/// TLS on a Wire: all that makes an encrypted connection another one than a plain one. One thread may read while
/// another one writes.
///
/// What is encrypted and did not fit into the socket waits in `sealed`, up to a bound. write() then counts the last of
/// its bytes as not written: so its caller comes back with it, and is done only when nothing waits any more. So
/// OpenSSL itself never has to be called again with the same bytes.
class TlsSession {
public:
    /// `ssl` has its side, and nothing else, behind it. `plain_answer` is for clients without TLS, null: they get none.
    TlsSession(SslPointer ssl, const std::string* plain_answer);
    TlsSession(const TlsSession&) = delete;
    TlsSession& operator=(const TlsSession&) = delete;
    ~TlsSession();
    /// Once, by the wire that it belongs to.
    void attach(Wire& wire) { pipe_.wire = &wire; }

    // As of Wire:
    WireResult read(void* to, std::size_t size, Wire::Wait wait);
    WireResult write(std::span<const iovec> parts);
    bool holds_bytes() const;
    bool awaits_rest() const;
    std::optional<PeerCertificate> certificate() const;
    /// Tells the other side that no more comes.
    void finish();
    /// The other side is told nothing at the end.
    void abandon();

    /// One step of a client's handshake.
    enum class Step { done, reads, writes, failed };
    Step shake_hands();
    /// Why the last step failed: OpenSSL's words, and whether the other side's certificate was the reason.
    struct Failure {
        std::string text;
        bool untrusted = false;
        bool not_tls = false;
    };
    Failure failure() const;

    /// Marks the certificate of the other side as bad, and goes on: the answer to its first request says so.
    static int note_bad_certificate(int is_good, X509_STORE_CTX* store);

private:
    /// What OpenSSL reads from and writes to.
    struct Pipe {
        Wire* wire = nullptr;
        Wire::Wait wait = Wire::Wait::none;  ///< of the next read
        bool ended = false, broken = false;
        std::string sealed;    ///< encrypted, not sent
        std::size_t sent = 0;  ///< of it
    };
    static int pipe_read(BIO* bio, char* to, int size);
    static int pipe_write(BIO* bio, const char* from, int size);
    static long pipe_control(BIO* bio, int command, long number, void* pointer);
    static const BIO_METHOD* pipe_method();

    bool send_sealed();
    std::size_t seal_some(std::span<const iovec> parts, std::size_t skipped);
    bool seal(const void* from, std::size_t size);
    WireResult read_status(int result);
    void say_goodbye();

    mutable std::mutex mutex_;  // of all below
    Pipe pipe_;
    SslPointer ssl_;
    const std::string* plain_answer_;
    bool owed_ = false;  // the first byte that is written next is in `sealed` already
    bool failed_ = false, said_goodbye_ = false, started_ = false;
    bool holds_ = false;  // the last read was full before OpenSSL was empty
};

}  // namespace shared_tensor::http
