// libFuzzer entry for what a peer sends over HTTP: a connection's bytes, read as requests one behind another. Beyond
// not crashing it holds: where a request begins and ends does not depend on the pieces in which it comes, a body is as
// large as it was said to be, and what was taken of a head says the same when it is written down again.

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "net/message/body.hpp"
#include "net/message/head_parser.hpp"
#include "net/message/text.hpp"
#include "require.hpp"

namespace {

using namespace shared_tensor;
using namespace shared_tensor::net;
using test::require;

constexpr std::size_t kMaxBody = 4096;

/// A peer that sends `bytes`, at most `piece` of them at once, and no more.
class PiecewiseStream final : public Stream {
public:
    PiecewiseStream(std::string_view bytes, std::size_t piece) : Stream(ProcessFd()), rest_(bytes), piece_(piece) {}
    StreamResult read(void* to, std::size_t size, Wait) override {
        if (rest_.empty()) return {StreamStatus::end};
        const std::size_t got = rest_.copy(static_cast<char*>(to), std::min(size, piece_));
        rest_.remove_prefix(got);
        return {StreamStatus::ok, got};
    }
    StreamResult write(std::span<const iovec>) override { return {StreamStatus::broken}; }

private:
    std::string_view rest_;
    const std::size_t piece_;
};

/// What a connection's bytes meant, in the order of the bytes.
using Story = std::vector<std::string>;

std::string written_again(const RequestFrame& frame, std::string_view request_line) {
    std::string text(request_line);
    for (const auto& [name, value] : frame.head.headers)
        text.append("\r\n").append(name).append(": ").append(value);
    return text.append("\r\n\r\n");
}

/// All that was understood, in one line.
std::string told(const RequestFrame& frame) {
    std::string text = frame.head.method + ' ' + frame.head.path + '?' + frame.head.query;
    for (const auto& [name, value] : frame.head.headers)
        text.append("|").append(name).append("=").append(value);
    text.append("|length ").append(frame.framing.length ? std::to_string(*frame.framing.length) : "none");
    for (const bool flag : {frame.framing.chunked, frame.keep_alive, frame.http_1_0, frame.expect_continue})
        text.append(flag ? " yes" : " no");
    return text;
}

void check_head(const RequestFrame& frame, std::string_view head) {
    const auto& [length, chunked] = frame.framing;
    require(!(length && chunked), "a body has one end");
    require(is_token(frame.head.method), "a method is a token");
    require(frame.head.path == "*" || frame.head.path.starts_with('/') || head.find("://") != head.npos,
            "a path starts with /");
    require(std::none_of(frame.head.path.begin(), frame.head.path.end(),
                         [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
            "a path has no control characters");
    const std::string again = written_again(frame, head.substr(0, head.find("\r\n")));
    HeadScan scan;
    const auto size = scan.advance(again, {.line_bytes = 1 << 20, .head_bytes = 1 << 20});
    require(std::holds_alternative<std::size_t>(size) && std::get<std::size_t>(size) == again.size(),
            "what is written again is one head");
    const auto parsed = parse_request_head(again);
    require(std::holds_alternative<RequestFrame>(parsed) && told(std::get<RequestFrame>(parsed)) == told(frame),
            "what is written again says the same");
}

/// The next head, taken off the connection; nothing where there is none, or a rejected one.
std::optional<RequestFrame> read_head(Stream& stream, InputBuffer& input, Story& story) {
    for (HeadScan scan;;) {
        const auto scanned = scan.advance(input.view(), {});
        if (std::holds_alternative<HeadRejection>(scanned)) {
            // Which fault is told may depend on the pieces: a line is too long before it turns out to end badly.
            story.emplace_back("no head");
            return std::nullopt;
        }
        if (const auto* size = std::get_if<std::size_t>(&scanned)) {
            const std::string head(input.view().substr(0, *size));  // of just this size: reading past its end is seen
            input.consume(*size);
            auto parsed = parse_request_head(head);
            if (const auto* rejection = std::get_if<HeadRejection>(&parsed)) {
                story.push_back("rejected: " + std::string(rejection->reason));
                return std::nullopt;
            }
            auto& frame = std::get<RequestFrame>(parsed);
            check_head(frame, head);
            story.push_back(told(frame));
            return std::move(frame);
        }
        char* room = input.room();
        const StreamResult got = stream.read(room, input.room_size(), Stream::Wait::none);
        if (got.status != StreamStatus::ok) return std::nullopt;
        input.filled(got.bytes);
    }
}

bool read_one_body(Stream& stream, InputBuffer& input, Framing framing, Story& story) {
    static BufferPool buffers;
    if (!framing.chunked) framing.length = framing.length.value_or(0);
    const auto rate = MinimumRate::until(MinimumRate::Clock::now() + std::chrono::seconds(30));
    const auto body = read_body(stream, input, framing, rate, {kMaxBody}, buffers);
    if (const auto* rejection = std::get_if<BodyRejection>(&body)) {
        story.push_back("no body: " + std::to_string(static_cast<int>(*rejection)));
        return false;
    }
    const auto& bytes = *std::get<std::shared_ptr<PooledBuffer>>(body);
    require(bytes.size() <= kMaxBody, "no body is larger than planned");
    require(framing.chunked || bytes.size() == framing.length, "a body is as large as was said");
    story.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
}

Story read_all(std::string_view bytes, std::size_t piece) {
    PiecewiseStream stream(bytes, piece);
    InputBuffer input(256);
    Story story;
    while (const auto frame = read_head(stream, input, story)) {
        if (!read_one_body(stream, input, frame->framing, story)) break;
    }
    return story;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string bytes(data, data + size);
    const Story whole = read_all(bytes, bytes.size() + 1);
    for (const std::size_t piece : {1, 7, 64})
        require(read_all(bytes, piece) == whole, "a connection means the same in pieces of every size");
    (void)parse_response_head(bytes);
    return 0;
}
