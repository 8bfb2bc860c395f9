#include "net/server/response_writer.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <stdexcept>

using namespace shared_tensor;
using namespace std::chrono_literals;

namespace {

/// Takes at most `most` bytes at a time.
class Sink final : public net::Stream {
public:
    explicit Sink(std::size_t most) : Stream(UniqueFd(::dup(1))), most_(most) {}  // which can be written to: no wait
    net::StreamResult read(void*, std::size_t, Wait) override { return {net::StreamStatus::end}; }
    net::StreamResult write(std::span<const iovec> parts) override {
        std::size_t taken = 0;
        for (const iovec& part : parts) {
            const std::size_t count = std::min(part.iov_len, most_ - taken);
            text.append(static_cast<const char*>(part.iov_base), count);
            taken += count;
        }
        return {net::StreamStatus::ok, taken};
    }

    std::string text;

private:
    const std::size_t most_;
};

/// The bytes 0, 1, ... 250, 0, ...
class Counting final : public net::BodySource {
public:
    std::unique_ptr<Reading> read(std::uint64_t offset, std::uint64_t count) const override {
        return std::make_unique<Pieces>(*this, offset, count);
    }
    bool fails = false;

private:
    class Pieces final : public Reading {
    public:
        Pieces(const Counting& source, std::uint64_t offset, std::uint64_t count)
            : source_(source), at_(offset), end_(offset + count) {}
        std::span<const std::byte> next() override {
            if (source_.fails) throw std::runtime_error("the device is gone");
            piece_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(100'000, end_ - at_)));
            for (std::byte& one : piece_)
                one = static_cast<std::byte>(at_++ % 251);
            return piece_;
        }

    private:
        const Counting& source_;
        std::uint64_t at_;
        const std::uint64_t end_;
        std::vector<std::byte> piece_;
    };
};

struct Written {
    net::WriteOutcome outcome;
    std::string body;
    std::size_t bytes = 0;
};

Written write(const net::Response& response, std::size_t most = 100'000, net::ResponseForm form = {}) {
    Sink sink(most);
    Written written{};
    written.outcome = net::write_response(sink, response, form, {1s, 0}, written.bytes);
    CHECK(written.bytes >= sink.text.size());
    written.body = sink.text.substr(sink.text.find("\r\n\r\n") + 4);
    return written;
}

net::BodyPart text_part(const std::string& text) { return {std::as_bytes(std::span(text)), nullptr}; }

}  // namespace

TEST_CASE("bytes that are made when they are sent stand among those that lie there", "[http][body]") {
    const std::string before = "before", after = "after";
    const auto source = std::make_shared<Counting>();
    net::Response response;
    response.parts = {text_part(before), {{}, {}, source, 7, 3'000'000}, text_part(after)};
    std::string wanted = before;
    for (std::uint64_t i = 0; i < 3'000'000; ++i)
        wanted.push_back(static_cast<char>((7 + i) % 251));
    wanted += after;
    const Written written = write(response);
    CHECK(written.outcome == net::WriteOutcome::done);
    CHECK(written.body == wanted);
    CHECK(net::render_response_head(response, {}).find("Content-Length: 3000011\r\n") != std::string::npos);
}

TEST_CASE("bytes of a source can be cut like others", "[http][body]") {
    const auto source = std::make_shared<Counting>();
    const net::BodyPart whole{{}, {}, source, 10, 100};
    net::Response response;
    response.parts = {whole.part(5, 3)};
    CHECK(write(response).body == "\x0f\x10\x11");
}

TEST_CASE("HEAD reads nothing of a source", "[http][body]") {
    const auto source = std::make_shared<Counting>();
    source->fails = true;
    net::Response response;
    response.parts = {{{}, {}, source, 0, 100}};
    const Written written = write(response, 100'000, {.head_only = true});
    CHECK(written.outcome == net::WriteOutcome::done);
    CHECK(written.body.empty());
}

TEST_CASE("an answer whose bytes cannot be read is cut off", "[http][body]") {
    const auto source = std::make_shared<Counting>();
    source->fails = true;
    net::Response response;
    response.parts = {{{}, {}, source, 0, 100}};
    CHECK(write(response).outcome == net::WriteOutcome::broken);
}
