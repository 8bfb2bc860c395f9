#include "client/transfers/transfer.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/message/fields.hpp"
#include "protocol/json_rpc/error.hpp"
#include "protocol/json_rpc/message.hpp"
#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

using Kind = net::TransportError::Kind;

std::vector<std::byte> content(std::size_t size, unsigned seed = 0) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = static_cast<std::byte>((i * 2654435761U + seed) >> 7);
    return bytes;
}

/// A server of one file, and what can go wrong with it. Any thread.
class FileServer {
public:
    explicit FileServer(std::size_t size) : bytes_(content(size)) {}

    /// Said before each answer, counted from 1, with the lock.
    std::function<void(int request)> before;
    /// The connection breaks after so many bytes of the body, if that is less.
    std::function<std::size_t(int request)> cut = [](int) { return std::size_t(-1); };
    std::function<bool(int request)> damage = [](int) { return false; };
    bool ranges = true, digests = true, conditions = true;
    int status = 0;  ///< of a rejection; 0: none
    json_rpc::Error rejection = json_rpc::internal_error();
    int wait_for = 0;  ///< requests at once, from the second on, if there are as many within half a minute

    void change() { bytes_ = content(bytes_.size(), static_cast<unsigned>(++version_)); }
    const std::vector<std::byte>& bytes() const { return bytes_; }

    net::ClientResponse send(const net::ClientRequest& request) {
        const int now = ++at_once;
        for (int most = most_at_once; most < now && !most_at_once.compare_exchange_weak(most, now);) {
        }
        const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (requests > 0 && most_at_once < wait_for && std::chrono::steady_clock::now() < patience)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        struct Leave {
            std::atomic<int>& count;
            ~Leave() { --count; }
        } leave{at_once};
        const std::lock_guard lock(mutex_);
        const int number = ++requests;
        if (before) before(number);
        if (status != 0) return reject(status, rejection);
        const std::string etag = "\"v" + std::to_string(version_) + "\"";
        if (const auto match = request.headers.find("If-Match"); match && conditions && *match != etag)
            return reject(412, json_rpc::invalid_params("If-Match", etag, "another"));
        return answer(request, etag, number);
    }

    std::atomic<int> requests{0}, retries{0}, at_once{0}, most_at_once{0};
    std::atomic<std::uint64_t> sent{0};

private:
    net::ClientResponse reject(int code, const json_rpc::Error& error) {
        net::ClientResponse response;
        response.status = code;
        std::string text;
        json_rpc::print(json_rpc::Response{nullptr, error}, text);
        response.body = filled(std::as_bytes(std::span(text)));
        if (code == 416) response.headers.add("Content-Range", net::content_range_of_none(bytes_.size()));
        return response;
    }

    net::ClientResponse answer(const net::ClientRequest& request, const std::string& etag, int number) {
        net::ClientResponse response;
        response.headers.add("ETag", etag);
        const auto requested = net::parse_range(ranges ? request.headers.find("Range") : std::nullopt, bytes_.size());
        if (requested.kind == net::RangeRequest::Kind::not_there)
            return reject(416, json_rpc::invalid_params("Range", "", ""));
        const bool is_part = requested.kind == net::RangeRequest::Kind::part;
        response.status = is_part ? 206 : 200;
        const net::ByteRange range = is_part ? requested.part : net::ByteRange{0, bytes_.size()};
        if (is_part) response.headers.add("Content-Range", net::content_range(range, bytes_.size()));
        std::vector<std::byte> body(bytes_.begin() + static_cast<std::ptrdiff_t>(range.first),
                                    bytes_.begin() + static_cast<std::ptrdiff_t>(range.first + range.count));
        if (digests && net::wants_digest(request.headers.find("Want-Content-Digest")))
            response.headers.add("Content-Digest", net::digest_field(Digest::of(body)));
        if (damage(number)) body[body.size() / 2] ^= std::byte{1};
        const std::size_t count = std::min(cut(number), body.size());
        sent += count;
        if (request.place != nullptr) {
            if (request.place->memory.size() != body.size())
                throw net::TransportError(Kind::protocol, true, "another length");
            request.place->headers = response.headers;
            request.place->status = response.status;
            std::memcpy(request.place->memory.data(), body.data(), count);
            request.place->filled = count;
        }
        if (count < body.size()) throw net::TransportError(Kind::broken, true, "the connection broke");
        response.body =
            filled(request.place != nullptr ? std::span<const std::byte>() : std::span<const std::byte>(body));
        return response;
    }

    std::shared_ptr<PooledBuffer> filled(std::span<const std::byte> bytes) {
        auto buffer = pool_.take(bytes.size() + 1);
        buffer->resize(bytes.size());
        if (!bytes.empty()) std::memcpy(buffer->data(), bytes.data(), bytes.size());
        return buffer;
    }

    std::mutex mutex_;
    BufferPool pool_;
    std::vector<std::byte> bytes_;
    int version_ = 1;
};

PullOptions ranges(std::size_t connections, std::size_t bytes, bool verify = true) {
    PullOptions options;
    options.connections = connections;
    options.range_bytes = bytes;
    options.verify = verify;
    return options;
}

/// Downloads with four tries and no pauses between them.
client::Downloaded download(const Reply& reply, const PullOptions& options, std::atomic<int>* retries = nullptr) {
    ClientOptions of_client = options_for_tests();
    of_client.retry_budget.saved = 1000;
    client::Core core(of_client, {std::make_unique<ScriptedRequests>(std::vector{reply}), std::make_unique<NoPorts>(),
                                  &real_clock(), [](SteadyTime) {}});
    auto file = client::download(core, "/f", options, {});
    if (retries != nullptr) *retries += static_cast<int>(core.statistics().retries);
    return file;
}

client::Downloaded download(FileServer& server, const PullOptions& options = {}) {
    return download([&](const net::ClientRequest& request) { return server.send(request); }, options, &server.retries);
}

bool is_whole(const client::Downloaded& file, const FileServer& server) {
    return std::ranges::equal(file.bytes->bytes(), server.bytes());
}

constexpr std::size_t kFirst = (std::size_t{1} << 20) + (std::size_t{64} << 10);  // at most, of the first request

}  // namespace

TEST_CASE("A file comes whole, in ranges of any size over any number of connections", "[client][download]") {
    for (const std::size_t size : {std::size_t(1), std::size_t(1000), kFirst, kFirst + 1, 3 * kFirst + 12'345}) {
        for (const PullOptions& form :
             {ranges(1, kFirst), ranges(4, kFirst), ranges(8, 100'000), ranges(3, 64 * kFirst)}) {
            INFO(size << " bytes, ranges of " << form.range_bytes << " over " << form.connections);
            FileServer server(size);
            CHECK(is_whole(download(server, form), server));
            const std::size_t first = std::min({size, kFirst, form.range_bytes});
            CHECK(server.requests == 1 + static_cast<int>((size - first + form.range_bytes - 1) / form.range_bytes));
            CHECK(server.most_at_once <= static_cast<int>(form.connections));
            CHECK(server.sent == size);
        }
    }
}

TEST_CASE("A tensor of 1 MiB comes with the header of its file in one request", "[client][download]") {
    for (const auto& [size, requests] : {std::pair{1'048'576 + 65'536, 1}, {1'048'576 + 65'537, 2}}) {
        FileServer server(static_cast<std::size_t>(size));
        CHECK(is_whole(download(server), server));
        CHECK(server.requests == requests);
    }
}

TEST_CASE("Ranges are fetched at once", "[client][download]") {
    FileServer server(9 * kFirst);
    server.wait_for = 4;
    CHECK(is_whole(download(server, ranges(4, kFirst)), server));
    CHECK(server.most_at_once == 4);
}

TEST_CASE("An empty file is fetched, and one of a server without ranges", "[client][download]") {
    FileServer empty(0), plain(3 * kFirst);
    plain.ranges = false;
    CHECK(download(empty).bytes->size() == 0);
    CHECK(is_whole(download(plain), plain));
    CHECK(plain.requests == 1);
}

TEST_CASE("What a broken connection brought is kept", "[client][download]") {
    for (const std::size_t piece : {4096UL, 5000UL, 65'536UL, 99'999UL}) {
        INFO("after each " << piece << " bytes");
        const std::size_t size = kFirst + 300'000;
        FileServer server(size);
        server.cut = [piece](int request) { return request == 1 ? std::size_t(-1) : piece; };
        CHECK(is_whole(download(server, ranges(2, 100'000)), server));
        CHECK(server.sent == size);  // nothing twice
    }
}

TEST_CASE("A server that says a byte for each connection is given up", "[client][download]") {
    FileServer server(2 * kFirst);
    server.cut = [](int request) { return request == 1 ? std::size_t(-1) : std::size_t(1); };
    CHECK_THROWS_AS(download(server, ranges(1, kFirst)), TransportFailure);
    CHECK(server.requests == 5);
}

TEST_CASE("What a broken answer brought is not kept when it is of another file", "[client][download]") {
    FileServer server(3 * kFirst);
    server.conditions = false;  // as of a proxy that passes over If-Match
    server.before = [&](int request) {
        if (request == 2) server.change();
    };
    server.cut = [](int request) { return request == 2 ? kFirst / 2 : std::size_t(-1); };
    const auto file = download(server, ranges(1, kFirst, false));
    CHECK(is_whole(file, server));
    CHECK(file.headers.find("ETag") == "\"v2\"");
}

TEST_CASE("One range may be as large as can be", "[client][download]") {
    FileServer server(3 * kFirst);
    CHECK(is_whole(download(server, ranges(4, std::numeric_limits<std::size_t>::max())), server));
    CHECK(server.requests == 2);
}

TEST_CASE("A first request that breaks off is made smaller", "[client][download]") {
    FileServer server(3 * kFirst);
    server.cut = [](int request) { return request < 20 ? std::size_t(5000) : std::size_t(-1); };
    CHECK(is_whole(download(server, ranges(2, kFirst)), server));
}

TEST_CASE("A connection that breaks before its first byte is tried again, and not for ever", "[client][download]") {
    FileServer twice(2 * kFirst), always(2 * kFirst);
    twice.cut = [](int request) { return request % 3 == 0 ? std::size_t(-1) : std::size_t(0); };
    CHECK(is_whole(download(twice, ranges(1, kFirst)), twice));
    always.cut = [](int) { return std::size_t(0); };
    CHECK_THROWS_AS(download(always), TransportFailure);
    CHECK(always.requests == 4);
    always.cut = [](int request) { return request == 5 ? std::size_t(-1) : std::size_t(0); };
    CHECK_THROWS_AS(download(always, ranges(4, 100'000)), TransportFailure);
}

TEST_CASE("Bytes that were damaged on the way are fetched once more, resumed ones too", "[client][download]") {
    FileServer server(3 * kFirst);
    server.damage = [](int request) { return request == 1 || request == 3; };
    CHECK(is_whole(download(server, ranges(1, kFirst)), server));
    CHECK(server.requests == 5);
    CHECK(server.retries == 2);

    FileServer resumed(2 * kFirst);
    resumed.cut = [](int request) { return request == 2 ? kFirst / 2 : std::size_t(-1); };
    resumed.damage = [](int request) { return request == 3; };  // of the rest
    CHECK(is_whole(download(resumed, ranges(1, kFirst)), resumed));
    CHECK(resumed.requests == 4);

    FileServer always(3 * kFirst);
    always.damage = [](int request) { return request > 1; };
    CHECK_THROWS_AS(download(always, ranges(2, kFirst)), TransportFailure);
}

TEST_CASE("Who does not verify asks for no digest, and who gets none goes on", "[client][download]") {
    FileServer server(2 * kFirst);
    server.damage = [](int request) { return request == 2; };
    const auto file = download(server, ranges(1, kFirst, false));
    CHECK_FALSE(is_whole(file, server));
    FileServer silent(2 * kFirst);
    silent.digests = false;
    CHECK(is_whole(download(silent), silent));
}

TEST_CASE("A file that changes meanwhile is of one version all the same", "[client][download]") {
    FileServer server(5 * kFirst);
    server.before = [&](int request) {
        if (request == 3) server.change();
    };
    const auto file = download(server, ranges(2, kFirst));
    CHECK(is_whole(file, server));
    CHECK(file.headers.find("ETag") == "\"v2\"");
}

TEST_CASE("A file that changes with each request comes by one request", "[client][download]") {
    FileServer server(5 * kFirst);
    server.before = [&](int) { server.change(); };
    CHECK(is_whole(download(server, ranges(2, kFirst)), server));
}

TEST_CASE("A file that changes each time that its connection breaks has expired", "[client][download]") {
    FileServer server(5 * kFirst);
    server.before = [&](int) { server.change(); };
    server.cut = [](int) { return 2 * kFirst; };
    CHECK_THROWS_AS(download(server, ranges(2, kFirst)), TensorExpired);
}

TEST_CASE("What the server answers is thrown as its error", "[client][download]") {
    FileServer server(2 * kFirst);
    server.status = 404;
    server.rejection = json_rpc::unknown_or_expired("tensor", "e");
    CHECK_THROWS_AS(download(server), UnknownOrExpired);
    server.status = 406;
    server.rejection = json_rpc::invalid_params("form", "another", "this");
    CHECK_THROWS_AS(download(server), InvalidParams);
    CHECK(server.requests == 2);
    server.status = 0;
    server.before = [&](int request) { server.status = request >= 4 ? 404 : 0; };  // gone in the middle
    server.rejection = json_rpc::unknown_or_expired("tensor", "e");
    CHECK_THROWS_AS(download(server, ranges(1, kFirst / 2)), UnknownOrExpired);
}

TEST_CASE("A server that is busy is asked again", "[client][download]") {
    FileServer server(2 * kFirst);
    server.rejection = json_rpc::busy(std::chrono::milliseconds(1));
    server.before = [&](int request) { server.status = request == 1 || request == 3 ? 503 : 0; };
    CHECK(is_whole(download(server, ranges(1, kFirst)), server));
    CHECK(server.requests == 4);
}

TEST_CASE("An answer that is not what was asked for is rejected", "[client][download]") {
    BufferPool pool;
    const auto answered = [&](int status, const char* range) {
        return download(
            [&](const net::ClientRequest&) {
                net::ClientResponse response;
                response.status = status;
                response.headers.add("Content-Range", range);
                response.body = pool.take(10);
                response.body->resize(10);
                return response;
            },
            {});
    };
    for (const auto* range : {"", "bytes 0-9/*", "bytes 1-10/20", "bytes 0-10/20", "bytes */20", "nonsense"}) {
        INFO(range);
        CHECK_THROWS_AS(answered(206, range), TransportFailure);
    }
    CHECK_THROWS_AS(answered(302, ""), TransportFailure);
    CHECK_THROWS_AS(answered(500, ""), TransportFailure);
}
