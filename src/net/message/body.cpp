#include "net/message/body.hpp"

#include <httplib.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/message/text.hpp"

namespace shared_tensor::net {

namespace {

constexpr std::chrono::milliseconds kLingerAtMost{20};  // the longest that net::Stream::Wait::linger may take
constexpr std::size_t kFirstBuffer = 64 << 10;          // of a body of unknown length

/// Reads up to `size` bytes as soon as some are there, first from `input`, then from the socket without a copy.
/// `again`: none came in time.
StreamResult read_some(net::Stream& stream, InputBuffer& input, char* to, std::size_t size, MinimumRate& rate) {
    if (!input.empty()) {
        const std::size_t there = std::min(size, input.size());
        std::memcpy(to, input.view().data(), there);
        input.consume(there);
        return {StreamStatus::ok, there};
    }
    while (true) {
        // One system call if the bytes come soon. ppoll, whose wait is exact, if they do not or if time is short.
        const auto deadline = rate.deadline();
        const bool short_of_time = deadline - MinimumRate::Clock::now() < kLingerAtMost;
        const StreamResult got =
            stream.read(to, size, short_of_time ? net::Stream::Wait::none : net::Stream::Wait::linger);
        if (got.status == StreamStatus::ok) rate.moved(got.bytes, MinimumRate::Clock::now());
        if (got.status != StreamStatus::again || wait_ready(stream.fd(), POLLIN, deadline) == 0) return got;
    }
}

BodyRejection rejection_of(StreamStatus status) {
    return status == StreamStatus::again ? BodyRejection::late : BodyRejection::cut;
}

/// The stream that httplib's decoder reads from. Small reads (chunk sizes, line ends) fill the buffer; large reads go
/// from the socket to their place without a copy.
class ChunkStream final : public httplib::Stream {
public:
    ChunkStream(net::Stream& stream, InputBuffer& input, MinimumRate& rate)
        : stream_(stream), input_(input), rate_(rate) {}

    /// Of the last read; `ok` before the first one.
    StreamStatus status() const { return status_; }

    ssize_t read(char* to, size_t size) override {
        constexpr std::size_t kSmall = 16 << 10;
        if (size < kSmall && input_.empty() && !fill()) return -1;
        const StreamResult got = read_some(stream_, input_, to, size, rate_);
        return note(got) ? static_cast<ssize_t>(got.bytes) : 0;
    }
    ssize_t write(const char*, size_t) override { return -1; }

    // Newer versions of httplib call these two to read lines in one pass. Older versions lack them: so no `override`.
    // NOLINTBEGIN(modernize-use-override,clang-diagnostic-inconsistent-missing-override)
    const char* buffered_data(size_t& size) const {
        size = input_.size();
        return size > 0 ? input_.view().data() : nullptr;
    }
    void consume_buffered(size_t size) { input_.consume(size); }
    // NOLINTEND(modernize-use-override,clang-diagnostic-inconsistent-missing-override)

    bool is_readable() const override { return !input_.empty(); }
    bool wait_readable() const override { return true; }
    bool wait_writable() const override { return false; }
    void get_remote_ip_and_port(std::string&, int&) const override {}
    void get_local_ip_and_port(std::string&, int&) const override {}
    socket_t socket() const override { return stream_.fd(); }
    time_t duration() const override { return 0; }

private:
    bool note(const StreamResult& got) {
        status_ = got.status;
        return got.status == StreamStatus::ok;
    }
    bool fill() {
        char* room = input_.room();  // input_ is empty, so read_some() reads from the wire
        const StreamResult got = read_some(stream_, input_, room, input_.room_size(), rate_);
        input_.filled(got.bytes);
        return note(got);
    }

    net::Stream& stream_;
    InputBuffer& input_;
    MinimumRate& rate_;
    StreamStatus status_ = StreamStatus::ok;
};

/// The number of the next bytes of a body of unknown length; 0 at its end.
using NextBytes = std::variant<std::size_t, BodyRejection>;

class Chunks {
public:
    Chunks(net::Stream& stream, InputBuffer& input, MinimumRate& rate, std::size_t max_chunks)
        : stream_(stream, input, rate), max_chunks_(max_chunks) {}

    NextBytes next(char* to, std::size_t room) {
        std::size_t offset = 0, total = 0;
        const ssize_t got = decoder_.read_payload(to, room, offset, total);
        if (got < 0) return rejection();
        if (got == 0) return read_trailers();
        if (offset == 0 && ++chunks_ > max_chunks_) return BodyRejection::too_many_chunks;
        return static_cast<std::size_t>(got);
    }

private:
    NextBytes read_trailers() {
        httplib::Headers trailers;
        if (decoder_.parse_trailers_into(trailers, {})) return std::size_t{0};
        return rejection();
    }
    BodyRejection rejection() const {
        return stream_.status() == StreamStatus::ok ? BodyRejection::malformed : rejection_of(stream_.status());
    }

    ChunkStream stream_;
    httplib::detail::ChunkedDecoder decoder_{stream_};
    const std::size_t max_chunks_;
    std::size_t chunks_ = 0;
};

/// Calls `next(to, room)` until the end of the body, with a buffer that grows.
template <class Next>
std::variant<std::shared_ptr<PooledBuffer>, BodyRejection> collect(const BodyLimits& limits, BufferPool& buffers,
                                                                   Next next) {
    std::shared_ptr<PooledBuffer> body;
    std::size_t size = 0;
    while (true) {
        if (body == nullptr || size == body->capacity()) {
            const std::size_t wanted = body != nullptr ? size * 2 : kFirstBuffer;
            if (limits.allow && !limits.allow(wanted)) return BodyRejection::not_allowed;
            body = body != nullptr ? buffers.grow(std::move(body), wanted) : buffers.take(wanted);
        }
        // Reads one byte beyond the limit, so that a body of exactly max_bytes passes.
        const std::size_t room = std::min(body->capacity() - size, limits.max_bytes - size + 1);
        const NextBytes got = next(reinterpret_cast<char*>(body->data()) + size, room);
        if (const auto* rejection = std::get_if<BodyRejection>(&got)) return *rejection;
        const std::size_t more = std::get<std::size_t>(got);
        if (more == 0) return body;
        if (more > limits.max_bytes - size) return BodyRejection::too_large;
        body->resize(size += more);
    }
}

}  // namespace

std::optional<BodyRejection> read_exactly(net::Stream& stream, InputBuffer& input, MinimumRate rate,
                                          std::span<std::byte> to, std::size_t& filled) {
    filled = 0;
    while (filled < to.size()) {
        auto* const place = reinterpret_cast<char*>(to.data()) + filled;
        const StreamResult got = read_some(stream, input, place, to.size() - filled, rate);
        if (got.status != StreamStatus::ok) return rejection_of(got.status);
        filled += got.bytes;
    }
    return std::nullopt;
}

std::variant<std::shared_ptr<PooledBuffer>, BodyRejection> read_body(net::Stream& stream, InputBuffer& input,
                                                                     const Framing& framing, MinimumRate rate,
                                                                     const BodyLimits& limits, BufferPool& buffers) {
    if (framing.chunked) {
        Chunks chunks(stream, input, rate, limits.max_chunks);
        return collect(limits, buffers, [&](char* to, std::size_t room) { return chunks.next(to, room); });
    }
    if (!framing.length) {
        return collect(limits, buffers, [&](char* to, std::size_t room) -> NextBytes {
            const StreamResult got = read_some(stream, input, to, room, rate);
            if (got.status == StreamStatus::ok || got.status == StreamStatus::end) return got.bytes;
            return rejection_of(got.status);
        });
    }
    if (*framing.length > limits.max_bytes) return BodyRejection::too_large;
    if (limits.allow && !limits.allow(*framing.length)) return BodyRejection::not_allowed;
    auto body = buffers.take(*framing.length);
    body->resize(*framing.length);
    std::size_t filled = 0;
    if (auto rejection = read_exactly(stream, input, rate, {body->data(), body->size()}, filled)) return *rejection;
    return body;
}

std::string_view reason_phrase(int status) { return httplib::status_message(status); }

}  // namespace shared_tensor::net
