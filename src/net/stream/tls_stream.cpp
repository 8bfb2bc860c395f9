#include "net/stream/tls_stream.hpp"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "base/bytes/ids.hpp"
#include "net/client/client.hpp"

namespace shared_tensor::net {

namespace {

constexpr std::size_t kRecord = 16 << 10;         // largest payload of a record (RFC 8446, section 5.1)
constexpr std::size_t kSealedAtOnce = 128 << 10;  // encrypted bytes before a send
constexpr std::size_t kMostUnsent = 512 << 10;    // encrypted bytes that the peer may leave while it sends
constexpr std::size_t kWrittenAtOnce = 1 << 20;   // bytes before a thread that reads gets the lock

struct FreeX509Text {
    void operator()(unsigned char* text) const { OPENSSL_free(text); }
};

/// Set on an SSL whose peer's certificate is not good.
int bad_certificate_index() {
    static const int kIndex = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
    return kIndex;
}

bool is_plain_text(std::string_view text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

std::string common_name(X509* certificate) {
    X509_NAME* subject = X509_get_subject_name(certificate);
    const int place = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (place < 0) return {};
    unsigned char* utf8 = nullptr;
    const int size = ASN1_STRING_to_UTF8(&utf8, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, place)));
    if (size < 0) return {};
    const std::unique_ptr<unsigned char, FreeX509Text> text(utf8);
    return {reinterpret_cast<const char*>(text.get()), static_cast<std::size_t>(size)};
}

std::string fingerprint(X509* certificate) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    if (X509_digest(certificate, EVP_sha256(), digest.data(), &size) != 1) return "unknown";
    return "sha256:" + hex(std::as_bytes(std::span(digest).first(size)));
}

}  // namespace

const BIO_METHOD* TlsStream::pipe_method() {
    static const BIO_METHOD* const kMethod = [] {
        BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "shared_tensor wire");
        if (method == nullptr) throw std::bad_alloc();
        BIO_meth_set_read(method, &TlsStream::pipe_read);
        BIO_meth_set_write(method, &TlsStream::pipe_write);
        BIO_meth_set_ctrl(method, &TlsStream::pipe_control);
        return method;
    }();
    return kMethod;
}

int TlsStream::pipe_read(BIO* bio, char* to, int size) {
    auto& self = *static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    if (self.sealed_.size() - self.sent_ > kMostUnsent) {  // it asks for answers (new keys) and does not take them
        self.broken_ = true;
        return -1;
    }
    const StreamResult got =
        self.Stream::read(to, static_cast<std::size_t>(size), std::exchange(self.wait_, Wait::none));
    if (got.status == StreamStatus::ok) return static_cast<int>(got.bytes);
    if (got.status == StreamStatus::again) BIO_set_retry_read(bio);
    self.ended_ |= got.status == StreamStatus::end;
    self.broken_ |= got.status == StreamStatus::broken;
    return got.status == StreamStatus::end ? 0 : -1;
}

/// Takes all bytes: seal_some() and pipe_read() bound their number.
int TlsStream::pipe_write(BIO* bio, const char* from, int size) {
    BIO_clear_retry_flags(bio);
    try {
        static_cast<TlsStream*>(BIO_get_data(bio))->sealed_.append(from, static_cast<std::size_t>(size));
    } catch (const std::bad_alloc&) {
        return -1;
    }
    return size;
}

long TlsStream::pipe_control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return static_cast<TlsStream*>(BIO_get_data(bio))->ended_ ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

TlsStream::TlsStream(ProcessFd fd, SslPointer ssl, const std::string* plain_answer)
    : Stream(std::move(fd)), ssl_(std::move(ssl)), plain_answer_(plain_answer) {
    BIO* bio = BIO_new(pipe_method());
    if (bio == nullptr) throw std::bad_alloc();
    BIO_set_data(bio, this);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
}

TlsStream::~TlsStream() { send_close_notify(); }

/// The alert close_notify: without it, the other side must assume that bytes are missing.
void TlsStream::send_close_notify() {
    if (failed_ || broken_ || !is_ready() || std::exchange(sent_close_notify_, true)) return;
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
    send_sealed();
}

void TlsStream::finish_writing() {
    {
        const std::lock_guard lock(mutex_);
        send_close_notify();
    }
    Stream::finish_writing();
}

void TlsStream::abandon_unsent() {
    {
        const std::lock_guard lock(mutex_);
        sent_close_notify_ = true;
    }
    Stream::abandon_unsent();
}

bool TlsStream::holds_bytes() const {
    const std::lock_guard lock(mutex_);
    return holds_;
}

bool TlsStream::awaits_rest() const {
    const std::lock_guard lock(mutex_);
    return !is_ready() || SSL_has_pending(ssl_.get()) == 1;
}

int TlsStream::note_bad_certificate(int is_good, X509_STORE_CTX* store) {
    if (is_good == 1) return 1;
    auto* ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    static char mark = 1;
    SSL_set_ex_data(ssl, bad_certificate_index(), &mark);
    ERR_clear_error();  // else SSL_get_error() reports this error as a failed handshake
    return 1;
}

std::optional<PeerCertificate> TlsStream::certificate() const {
    const std::lock_guard lock(mutex_);
    X509* certificate = SSL_get0_peer_certificate(ssl_.get());
    if (certificate == nullptr) return std::nullopt;
    const bool is_good = SSL_get_verify_result(ssl_.get()) == X509_V_OK &&
                         SSL_get_ex_data(ssl_.get(), bad_certificate_index()) == nullptr;
    std::string name = common_name(certificate);
    return PeerCertificate{is_plain_text(name) ? std::move(name) : fingerprint(certificate), is_good};
}

/// False if bytes are left, or the connection is broken.
bool TlsStream::send_sealed() {
    while (sent_ < sealed_.size()) {
        const iovec rest{sealed_.data() + sent_, sealed_.size() - sent_};
        const StreamResult result = Stream::write({&rest, 1});
        sent_ += result.bytes;
        broken_ |= result.status == StreamStatus::broken;
        if (result.status != StreamStatus::ok) return false;
    }
    sent_ = 0;
    if (sealed_.capacity() > kRecord) {
        sealed_ = {};  // so that idle connections hold little memory
    } else {
        sealed_.clear();
    }
    return true;
}

bool TlsStream::seal(const void* from, std::size_t size) {
    ERR_clear_error();
    if (SSL_write(ssl_.get(), from, static_cast<int>(size)) == static_cast<int>(size)) return true;
    failed_ = true;
    return false;
}

/// Encrypts bytes of `parts` after the first `skipped` ones, and returns how many. Small parts share a record.
std::size_t TlsStream::seal_some(std::span<const iovec> parts, std::size_t skipped) {
    std::array<char, kRecord> gathered;
    std::size_t used = 0, done = 0;
    const auto seal_gathered = [&] {
        if (used == 0 || !seal(gathered.data(), used)) return used == 0;
        done += std::exchange(used, 0);
        return true;
    };
    for (const iovec& part : parts) {
        const auto* from = static_cast<const char*>(part.iov_base);
        std::size_t left = part.iov_len;
        const std::size_t behind = std::min(skipped, left);
        skipped -= behind;
        from += behind;
        left -= behind;
        while (left > 0) {
            if (sealed_.size() >= kSealedAtOnce) {
                seal_gathered();
                return done;
            }
            if (used == 0 && left >= kRecord) {
                if (!seal(from, kRecord)) return done;
                done += kRecord;
                from += kRecord;
                left -= kRecord;
                continue;
            }
            const std::size_t some = std::min(left, gathered.size() - used);
            std::memcpy(gathered.data() + used, from, some);
            used += some;
            from += some;
            left -= some;
            if (used == gathered.size() && !seal_gathered()) return done;
        }
    }
    seal_gathered();
    return done;
}

StreamResult TlsStream::write(std::span<const iovec> parts) {
    const std::lock_guard lock(mutex_);
    if (failed_ || sent_close_notify_ || !is_ready()) return {StreamStatus::broken};
    if (!send_sealed()) return {broken_ ? StreamStatus::broken : StreamStatus::again};
    std::size_t done = std::exchange(owed_, false) ? 1 : 0;
    while (done < kWrittenAtOnce) {
        const std::size_t more = seal_some(parts, done);
        done += more;
        if (failed_) return {StreamStatus::broken};
        if (more == 0) break;
        if (send_sealed()) continue;
        if (broken_) return {StreamStatus::broken};
        owed_ = true;
        --done;
        return {done > 0 ? StreamStatus::ok : StreamStatus::again, done};
    }
    return {StreamStatus::ok, done};
}

StreamResult TlsStream::read_status(int result) {
    const int error = SSL_get_error(ssl_.get(), result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return {StreamStatus::again};
    if (error == SSL_ERROR_ZERO_RETURN) return {StreamStatus::end};
    failed_ = true;
    const bool is_plain = ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST;
    if (is_plain && plain_answer_ != nullptr) {
        const iovec words{const_cast<char*>(plain_answer_->data()), plain_answer_->size()};
        Stream::write({&words, 1});
    }
    return {ended_ && !started_ ? StreamStatus::end : StreamStatus::broken};
}

StreamResult TlsStream::read(void* to, std::size_t size, Wait wait) {
    const std::lock_guard lock(mutex_);
    if (failed_) return {StreamStatus::broken};
    wait_ = wait;
    std::size_t got = 0;
    StreamResult status{StreamStatus::ok};
    do {
        ERR_clear_error();
        const int some = SSL_read(ssl_.get(), static_cast<char*>(to) + got,
                                  static_cast<int>(std::min<std::size_t>(size - got, std::size_t{1} << 30)));
        if (some <= 0) {
            status = read_status(some);
            break;
        }
        started_ = true;
        got += static_cast<std::size_t>(some);
    } while (got < size && SSL_has_pending(ssl_.get()) == 1);
    holds_ = got == size && SSL_has_pending(ssl_.get()) == 1;
    send_sealed();  // messages of the handshake, alerts, new keys
    return got > 0 ? StreamResult{StreamStatus::ok, got} : status;
}

short TlsStream::shake_hands(const std::string& host) {
    const std::lock_guard lock(mutex_);
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    const int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), result);
    const bool sent = send_sealed();
    if (broken_) fail_handshake(host);
    if (!sent) return POLLOUT;
    if (result == 1) return 0;
    if (error == SSL_ERROR_WANT_READ) return POLLIN;
    failed_ = true;
    fail_handshake(host);
}

void TlsStream::fail_handshake(const std::string& host) const {
    using Kind = TransportError::Kind;
    if (const long verdict = SSL_get_verify_result(ssl_.get()); verdict != X509_V_OK) {
        throw TransportError(
            Kind::untrusted, false,
            "the certificate of " + host + " is not trusted: " + X509_verify_cert_error_string(verdict));
    }
    const unsigned long error = ERR_peek_error();
    const bool closed = ended_ || broken_ || error == 0;
    const int reason = ERR_GET_REASON(error);
    if (!closed && (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG))
        throw TransportError(Kind::protocol, false, host + " does not speak TLS at that port; http:// may be meant");
    const char* text = closed ? "the server closed the connection in the handshake" : ERR_reason_error_string(error);
    throw TransportError(Kind::broken, false,
                         "no TLS with " + host + ": " + (text != nullptr ? text : "the handshake failed"));
}

}  // namespace shared_tensor::net
