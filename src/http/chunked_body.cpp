#include "http/chunked_body.hpp"

#include <httplib.h>

#include <algorithm>
#include <cstring>

namespace shared_tensor::http {

namespace {

/// What httplib's decoder reads from. Small reads (chunk sizes, line ends) fill the buffer, large ones go straight
/// from the socket to their place.
class ChunkStream final : public httplib::Stream {
public:
    ChunkStream(Wire& wire, InputBuffer& input, BodyClock& clock) : wire_(wire), input_(input), clock_(clock) {}

    ReadFailure failure() const { return failure_; }

    ssize_t read(char* to, size_t size) override {
        constexpr std::size_t kSmall = 16 << 10;
        if (size >= kSmall) return static_cast<ssize_t>(read_some(wire_, input_, to, size, clock_, failure_));
        if (input_.empty() && !fill()) return -1;
        const std::size_t got = std::min(size, input_.size());
        std::memcpy(to, input_.view().data(), got);
        input_.consume(got);
        return static_cast<ssize_t>(got);
    }
    ssize_t write(const char*, size_t) override { return -1; }

    // Line readers of newer versions scan these bytes in one pass; older ones know neither: so no `override`.
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
    socket_t socket() const override { return wire_.fd(); }
    time_t duration() const override { return 0; }

private:
    bool fill() {
        InputBuffer nothing(1);
        char* room = input_.room();
        const std::size_t got = read_some(wire_, nothing, room, input_.room_size(), clock_, failure_);
        input_.filled(got);
        return got > 0;
    }

    Wire& wire_;
    InputBuffer& input_;
    BodyClock& clock_;
    ReadFailure failure_ = ReadFailure::none;
};

class ChunkedReader {
public:
    ChunkedReader(BufferPool& buffers, ChunkStream& stream, const ChunkedLimits& limits)
        : buffers_(buffers), limits_(limits), decoder_(stream) {}

    std::optional<ChunkedFault> read(std::shared_ptr<PooledBuffer>& body) {
        if (auto fault = make_room(body)) return fault;
        while (true) {
            // One byte beyond the limit is read, so that a body of exactly max_bytes passes.
            const std::size_t room =
                std::min(body->capacity() - body->size(), limits_.max_bytes - body->size() + std::size_t{1});
            std::size_t offset = 0;
            std::size_t total = 0;
            auto* to = reinterpret_cast<char*>(body->data() + body->size());
            const ssize_t got = decoder_.read_payload(to, room, offset, total);
            if (got < 0) return ChunkedFault::malformed;
            if (got == 0) break;
            if (offset == 0 && ++chunks_ > limits_.max_chunks) return ChunkedFault::too_many_chunks;
            if (static_cast<std::size_t>(got) > limits_.max_bytes - body->size()) return ChunkedFault::too_large;
            body->resize(body->size() + static_cast<std::size_t>(got));
            if (auto fault = make_room(body)) return fault;
        }
        httplib::Headers trailers;
        return decoder_.parse_trailers_into(trailers, {}) ? std::nullopt : std::optional(ChunkedFault::malformed);
    }

private:
    std::optional<ChunkedFault> make_room(std::shared_ptr<PooledBuffer>& body) {
        constexpr std::size_t kFirst = 64 << 10;
        if (body && body->size() < body->capacity()) return std::nullopt;
        const std::size_t wanted = body ? body->capacity() * 2 : kFirst;
        if (limits_.allow && !limits_.allow(wanted)) return ChunkedFault::no_budget;
        body = body ? buffers_.grow(std::move(body), wanted) : buffers_.take(wanted);
        return std::nullopt;
    }

    BufferPool& buffers_;
    const ChunkedLimits& limits_;
    httplib::detail::ChunkedDecoder decoder_;
    std::size_t chunks_ = 0;
};

}  // namespace

std::variant<std::shared_ptr<PooledBuffer>, ChunkedFault> read_chunked_body(BufferPool& buffers, Wire& wire,
                                                                            InputBuffer& input, BodyClock& clock,
                                                                            const ChunkedLimits& limits) {
    ChunkStream stream(wire, input, clock);
    std::shared_ptr<PooledBuffer> body;
    const auto fault = ChunkedReader(buffers, stream, limits).read(body);
    if (stream.failure() == ReadFailure::late) return ChunkedFault::late;
    if (stream.failure() != ReadFailure::none) return ChunkedFault::gone;
    if (fault) return *fault;
    return body;
}

}  // namespace shared_tensor::http
