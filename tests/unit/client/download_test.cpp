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

#include "client/transfers/relay.hpp"
#include "net/message/fields.hpp"
#include "protocol/json_rpc/error.hpp"
#include "protocol/json_rpc/message.hpp"
#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

using Kind = net::TransportError::Kind;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kFirst = (std::size_t{1} << 20) + (std::size_t{64} << 10);  // at most, of the first request

[[noreturn]] void throw_no_answer() { throw net::TransportError(Kind::timeout, true, "no answer arrived in time"); }

/// What goes wrong with one request.
struct Fault {
    std::size_t cut = kAll;  ///< the connection breaks after so many bytes of the body, if that is less
    bool damages = false, changes = false;
    int status = 0;  ///< of a rejection; 0: none
};
using Faults = std::function<Fault(int request)>;  ///< counted from 1

/// A server of one file. Any thread.
class FileServer {
public:
    explicit FileServer(
        std::size_t size, Faults faults = [](int) { return Fault{}; })
        : faults_(std::move(faults)), size_(size) {
        fill();
    }

    bool ranges = true, digests = true, conditions = true;
    json_rpc::Error rejection = json_rpc::unknown_or_expired("tensor", "e");
    int wait_for = 0;  ///< requests at once, from the second on, if there are as many within half a minute

    net::ClientResponse send(const net::ClientRequest& request) {
        const int now = ++at_once;
        for (int most = most_at_once; most < now && !most_at_once.compare_exchange_weak(most, now);) {
        }
        const auto end = patience();
        while (requests > 0 && most_at_once < wait_for && real_clock().now() < end)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        struct Leave {
            std::atomic<int>& count;
            ~Leave() { --count; }
        } leave{at_once};
        const std::lock_guard lock(mutex_);
        const Fault fault = faults_(++requests);
        if (fault.changes) {
            ++version_;
            fill();
        }
        if (fault.status != 0) return reject(fault.status, rejection);
        const auto match = request.headers.find("If-Match");
        if (match && conditions && *match != etag()) return reject(412, json_rpc::invalid_params("If-Match", "", ""));
        return answer(request, fault);
    }
    bool sent_whole(const client::Downloaded& file) const {
        return std::ranges::equal(file.bytes->bytes(), bytes_) && file.headers.find("ETag") == etag();
    }

    std::atomic<int> requests{0}, at_once{0}, most_at_once{0};
    std::atomic<std::uint64_t> sent{0};

private:
    void fill() {
        bytes_.resize(size_);
        for (std::size_t i = 0; i < size_; ++i)
            bytes_[i] = static_cast<std::byte>((i * 2654435761U + version_) >> 7);
    }
    std::string etag() const { return "\"v" + std::to_string(version_) + "\""; }

    net::ClientResponse reject(int code, const json_rpc::Error& error) {
        net::ClientResponse response;
        response.status = code;
        std::string text;
        json_rpc::print(json_rpc::Response{nullptr, error}, text);
        response.body = filled(std::as_bytes(std::span(text)));
        if (code == 416) response.headers.add("Content-Range", net::content_range_of_none(size_));
        return response;
    }

    net::ClientResponse answer(const net::ClientRequest& request, const Fault& fault) {
        net::ClientResponse response;
        response.headers.add("ETag", etag());
        const auto requested = net::parse_range(ranges ? request.headers.find("Range") : std::nullopt, size_);
        if (requested.kind == net::RangeRequest::Kind::not_there)
            return reject(416, json_rpc::invalid_params("Range", "", ""));
        const bool is_part = requested.kind == net::RangeRequest::Kind::part;
        response.status = is_part ? 206 : 200;
        const net::ByteRange range = is_part ? requested.part : net::ByteRange{0, size_};
        if (is_part) response.headers.add("Content-Range", net::content_range(range, size_));
        std::vector<std::byte> body(bytes_.begin() + static_cast<std::ptrdiff_t>(range.first),
                                    bytes_.begin() + static_cast<std::ptrdiff_t>(range.first + range.count));
        if (digests && net::wants_digest(request.headers.find("Want-Content-Digest")))
            response.headers.add("Content-Digest", net::digest_field(Digest::of(body)));
        if (fault.damages) body[body.size() / 2] ^= std::byte{1};
        const std::size_t count = std::min(fault.cut, body.size());
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

    const Faults faults_;
    const std::size_t size_;
    std::mutex mutex_;
    BufferPool pool_;
    std::vector<std::byte> bytes_;
    unsigned version_ = 1;
};

PullOptions ranges(std::size_t connections, std::size_t bytes, bool verify = true) {
    PullOptions options;
    options.connections = connections;
    options.range_bytes = bytes;
    options.verify = verify;
    return options;
}

/// Downloads with four tries and no pauses between them.
client::Downloaded download(const Reply& reply, const PullOptions& options) {
    ClientOptions of_client = options_for_tests();
    of_client.retry_budget.saved = 1000;
    client::Core core(of_client, {std::make_unique<ScriptedRequests>(std::vector{reply}), std::make_unique<NoPorts>(),
                                  &real_clock(), [](SteadyTime) {}});
    return client::download(core, "/f", options, {});
}

client::Downloaded download(FileServer& server, const PullOptions& options = {}) {
    return download([&](const net::ClientRequest& request) { return server.send(request); }, options);
}

/// A server of a swarm of which one receiver asks, whose reports are answered by `answers`; the last goes on for ever.
/// Any thread.
class SwarmServer {
public:
    SwarmServer(FileServer& files, std::vector<Json> answers) : files_(files), answers_(std::move(answers)) {}

    net::ClientResponse send(const net::ClientRequest& request) {
        if (request.method != "POST") return files_.send(request);
        const Json answer = answers_.at(std::min(reports++, answers_.size() - 1));
        if (!answer.is_null()) return test::answer(200, answer.dump());
        std::string text;
        json_rpc::print(json_rpc::Response{nullptr, json_rpc::busy(std::chrono::milliseconds(1))}, text);
        return test::answer(503, text);
    }

    std::atomic<std::size_t> reports{0};

private:
    FileServer& files_;
    const std::vector<Json> answers_;
};

/// Whether all bytes of the server's newest version came.
bool is_whole(FileServer& server, const PullOptions& options = {}) {
    return server.sent_whole(download(server, options));
}

}  // namespace

TEST_CASE("Ranges are fetched at once, and a tensor of 1 MiB with its header in one request", "[client][download]") {
    FileServer at_once(9 * kFirst), one(1'048'576 + 65'536), empty(0), plain(3 * kFirst);
    at_once.wait_for = 4;
    CHECK(is_whole(at_once, ranges(4, kFirst)));
    CHECK(at_once.most_at_once == 4);
    plain.ranges = false;
    for (FileServer* server : {&one, &plain}) {
        CHECK(is_whole(*server));
        CHECK(server->requests == 1);
    }
    CHECK(download(empty).bytes->size() == 0);
}

TEST_CASE("What a broken connection brought is kept", "[client][download]") {
    for (const std::size_t piece : {4096UL, 5000UL, 65'536UL, 99'999UL}) {
        INFO("after each " << piece << " bytes");
        FileServer server(kFirst + 300'000, [=](int request) { return Fault{.cut = request == 1 ? kAll : piece}; });
        CHECK(is_whole(server, ranges(2, 100'000)));
        CHECK(server.sent == kFirst + 300'000);  // nothing twice
    }
}

TEST_CASE("What a broken answer brought is not kept when it is of another file", "[client][download]") {
    FileServer server(3 * kFirst, [](int request) {
        return Fault{.cut = request == 2 ? kFirst / 2 : kAll, .changes = request == 2};
    });
    server.conditions = false;  // as of a proxy that passes over If-Match
    CHECK(is_whole(server, ranges(1, kFirst, false)));
}

TEST_CASE("Bytes that do not come, or come damaged, are fetched once more", "[client][download]") {
    struct Case {
        std::size_t size;
        Faults faults;
        PullOptions options;
        int requests;  ///< 0: any number
    };
    const auto breaks_every = [](int request) { return Fault{.cut = request % 3 == 0 ? kAll : 0}; };
    const auto breaks_long = [](int request) { return Fault{.cut = request < 20 ? 5000 : kAll}; };  // made smaller
    const auto damages = [](int request) { return Fault{.damages = request == 1 || request == 3}; };
    const auto damages_rest = [](int request) {
        return Fault{.cut = request == 2 ? kFirst / 2 : kAll, .damages = request == 3};
    };
    const auto busy = [](int request) { return Fault{.status = request == 1 || request == 3 ? 503 : 0}; };
    for (const auto& [size, faults, options, requests] :
         std::vector<Case>{{2 * kFirst, breaks_every, ranges(1, kFirst), 0},
                           {3 * kFirst, breaks_long, ranges(2, kFirst), 0},
                           {3 * kFirst, damages, ranges(1, kFirst), 5},
                           {2 * kFirst, damages_rest, ranges(1, kFirst), 4},
                           {2 * kFirst, busy, ranges(1, kFirst), 4}}) {
        FileServer server(size, faults);
        server.rejection = json_rpc::busy(std::chrono::milliseconds(1));
        CHECK(is_whole(server, options));
        if (requests > 0) CHECK(server.requests == requests);
    }
}

TEST_CASE("A request that has no answer in time is repeated, until the time of the download is over",
          "[client][download]") {
    int requests = 0;
    const auto silent_to = [&](FileServer& server, int first, int last) {
        requests = 0;
        return [&, first, last](const net::ClientRequest& request) {
            if (++requests >= first && requests <= last) throw_no_answer();
            return server.send(request);
        };
    };
    for (const auto& [first, last] : std::vector<std::pair<int, int>>{{1, 1}, {2, 3}, {1, 2}}) {
        FileServer server(3 * kFirst);
        CHECK(server.sent_whole(download(silent_to(server, first, last), ranges(1, kFirst))));
    }
    FileServer never(3 * kFirst);
    const auto failure = thrown_by<TransportFailure>([&] { download(silent_to(never, 1, 1000), ranges(1, kFirst)); });
    CHECK(std::string(failure.what()).find("no answer arrived in time") != std::string::npos);
    CHECK(requests == 4);
    ScriptedClient late({[&](const net::ClientRequest&) -> net::ClientResponse {
        late.clock.advance(std::chrono::seconds(2));
        throw_no_answer();
    }});
    const CallOptions soon = within(std::chrono::seconds(1));
    CHECK_THROWS_AS(client::download(late.core, "/f", {}, soon), DeadlineExceeded);
    CHECK(late.tries() == 1);
}

TEST_CASE("A compressed file that does not come in time is fetched in ranges", "[client][download]") {
    FileServer server(3 * kFirst);
    int compressed = 0;
    ClientOptions options = options_for_tests();
    options.compression.codings = "zstd";
    ScriptedClient client({[&](const net::ClientRequest& request) -> net::ClientResponse {
                              if (request.headers.find("Accept-Encoding") && ++compressed) throw_no_answer();
                              return server.send(request);
                          }},
                          options);
    CHECK(server.sent_whole(client::download(client.core, "/f", ranges(1, kFirst), {})));
    CHECK(compressed == 1);
}

TEST_CASE("A part whose upload has no answer in time is sent again", "[client][upload]") {
    std::vector<std::byte> content(3000);
    int puts = 0;
    ScriptedClient client({[&](const net::ClientRequest& request) {
        if (request.method == "PUT" && ++puts == 2) throw_no_answer();
        return puts < 4 ? answer(202, "{}") : answer(201, R"({"version": 7})");
    }});
    PushOptions options;
    options.connections = 1;
    options.part_bytes = 1000;
    const client::UploadFile file{.path = "/f", .parts = {{content, {}}}, .size = content.size()};
    CHECK(client::upload(client.core, file, options, {}) == 7);
    CHECK(puts == 4);
}

TEST_CASE("A download is not tried for ever", "[client][download]") {
    FileServer never(2 * kFirst, [](int) { return Fault{.cut = 0}; });
    CHECK_THROWS_AS(download(never), TransportFailure);
    CHECK(never.requests == 4);
    FileServer first_only(2 * kFirst, [](int request) { return Fault{.cut = request == 1 ? kAll : 0}; });
    CHECK_THROWS_AS(download(first_only, ranges(4, 100'000)), TransportFailure);
    FileServer slow(2 * kFirst, [](int request) { return Fault{.cut = request == 1 ? kAll : 1}; });
    CHECK_THROWS_AS(download(slow, ranges(1, kFirst)), TransportFailure);
    CHECK(slow.requests == 5);
    FileServer damaged(3 * kFirst, [](int request) { return Fault{.damages = request > 1}; });
    CHECK_THROWS_AS(download(damaged, ranges(2, kFirst)), TransportFailure);
    FileServer changes(5 * kFirst, [](int) { return Fault{.cut = 2 * kFirst, .changes = true}; });
    CHECK_THROWS_AS(download(changes, ranges(2, kFirst)), TensorExpired);
}

TEST_CASE("Who does not verify asks for no digest, and who gets none goes on", "[client][download]") {
    FileServer server(2 * kFirst, [](int request) { return Fault{.damages = request == 2}; }), silent(2 * kFirst);
    CHECK_FALSE(is_whole(server, ranges(1, kFirst, false)));
    silent.digests = false;
    CHECK(is_whole(silent));
}

TEST_CASE("What a swarm brought is kept when it has no more place, but no bytes that were not checked",
          "[client][download][swarm]") {
    constexpr std::size_t kPiece = std::size_t{1} << 20, kPieces = 4;
    FileServer files(kPieces * kPiece);
    std::vector<std::byte> other(kPieces * kPiece, std::byte{7});
    auto passed_on = std::make_shared<PooledBuffer>(std::shared_ptr<const void>(), other.data(), other.size());
    passed_on->resize(other.size());
    PullOptions options = ranges(1, kPiece);
    options.swarm = SwarmOptions{.host = "127.0.0.1", .trusted = true};
    client::Relay relay(*options.swarm, {}, passed_on);
    relay.add(0, kPiece);
    const auto step = [&](std::uint64_t missing, const Json& more = Json::object()) {
        Json answer{{"receiver", "r"}, {"piece_bytes", kPiece}, {"missing", missing}, {"unfinished", 0}};
        answer.update(more);
        return answer;
    };
    const Json from_relay{{"piece", 0},
                          {"digest", std::string(32, '0')},
                          {"from", "http://127.0.0.1:" + std::to_string(relay.port()) + "/swarm/" + relay.key()}};
    const Json busy;
    const auto send_with = [&](SwarmServer& server) {
        return [&](const net::ClientRequest& request) { return server.send(request); };
    };
    SECTION("after bytes of another receiver that are wrong") {
        SwarmServer server(files, {step(kPieces, from_relay), step(kPieces), busy});
        CHECK(files.sent_whole(download(send_with(server), options)));
    }
    SECTION("after a piece from the server, which comes once") {
        SwarmServer server(files, {step(kPieces, {{"piece", 2}}), step(kPieces), busy});
        CHECK(files.sent_whole(download(send_with(server), options)));
        CHECK(files.sent == kPieces * kPiece);
    }
    SECTION("at once, if the first report is rejected") {
        SwarmServer server(files, {busy});
        CHECK(files.sent_whole(download(send_with(server), options)));
        CHECK(server.reports == 1);
        CHECK(files.sent == kPieces * kPiece);
    }
}

TEST_CASE("A receiver stays in its swarm when the server is busy for a moment", "[client][download][swarm]") {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    FileServer files(2 * kPiece);
    const auto step = [&](std::uint64_t missing, std::uint64_t piece) {
        return Json{
            {"receiver", "r"}, {"piece_bytes", kPiece}, {"missing", missing}, {"unfinished", 0}, {"piece", piece}};
    };
    Json done = step(0, 0);
    done.erase("piece");
    SwarmServer server(files, {step(2, 0), nullptr, nullptr, step(1, 1), step(1, 1), step(1, 1), step(1, 1), step(1, 1),
                               step(1, 1), step(1, 1), step(1, 1), done});
    PullOptions options = ranges(1, kPiece);
    options.swarm = SwarmOptions{.host = "127.0.0.1"};
    CHECK(files.sent_whole(download([&](const net::ClientRequest& request) { return server.send(request); }, options)));
    CHECK(server.reports > 11);  // and the last one leaves the swarm
}

TEST_CASE("Who lingers in a swarm asks the server once at a time, and waits no longer than it lingers",
          "[client][download][swarm]") {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    FileServer files(2 * kPiece);
    const Json done{{"receiver", "r"}, {"piece_bytes", kPiece}, {"missing", 0}, {"unfinished", 1}};
    Json first = done;
    first.update({{"missing", 2}, {"piece", 0}});
    Json second = done;
    second.update({{"missing", 1}, {"piece", 1}});
    SwarmServer server(files, {first, second, done});
    PullOptions options = ranges(1, kPiece);
    options.swarm = SwarmOptions{.host = "127.0.0.1", .linger = std::chrono::seconds(1)};
    int hung = 0;
    const auto begun = real_clock().now();
    CHECK(files.sent_whole(download(
        [&](const net::ClientRequest& request) {
            const bool lingers = request.method == "POST" && request.deadline < begun + std::chrono::seconds(4) &&
                                 request.text.find("leaves") == std::string::npos;
            if (!lingers) return server.send(request);
            ++hung;
            std::this_thread::sleep_until(request.deadline);
            throw_no_answer();
        },
        options)));
    CHECK(hung == 1);
}

TEST_CASE("A file that changes with each request comes by one request", "[client][download]") {
    FileServer server(5 * kFirst, [](int) { return Fault{.changes = true}; });
    CHECK(is_whole(server, ranges(2, kFirst)));
}

TEST_CASE("What the server answers is thrown as its error", "[client][download]") {
    FileServer gone(2 * kFirst, [](int) { return Fault{.status = 404}; });
    CHECK_THROWS_AS(download(gone), UnknownOrExpired);
    CHECK(gone.requests == 1);
    FileServer wrong(2 * kFirst, [](int) { return Fault{.status = 406}; });
    wrong.rejection = json_rpc::invalid_params("form", "another", "this");
    CHECK_THROWS_AS(download(wrong), InvalidParams);
    CHECK(wrong.requests == 1);
    FileServer gone_later(2 * kFirst, [](int request) { return Fault{.status = request >= 4 ? 404 : 0}; });
    CHECK_THROWS_AS(download(gone_later, ranges(1, kFirst / 2)), UnknownOrExpired);
}

TEST_CASE("A file that is larger than the memory of the host is rejected, and no memory is taken for it",
          "[client][download]") {
    for (const char* range : {"bytes 0-9/9223372036854775807", "bytes 0-9/9223372036854775808"}) {
        const auto claims = [&](const net::ClientRequest&) {
            auto response = answer(206, "0123456789");
            response.headers.add("Content-Range", range);
            return response;
        };
        const auto error = thrown_by<RpcError>([&] { download(claims, {}); });
        CHECK(error.is(ErrorCode::response_too_large));
    }
    const auto too_large = thrown_by<RpcError>([] { download(fails(net::TransportError::Kind::too_large, true), {}); });
    CHECK(too_large.is(ErrorCode::response_too_large));
    CHECK(std::string(too_large.what()).find("this process may use of memory") != std::string::npos);
}

TEST_CASE("An answer that is not what was asked for is rejected", "[client][download]") {
    BufferPool pool;
    for (const auto& [status, range] : std::vector<std::pair<int, const char*>>{{206, ""},
                                                                                {206, "bytes 0-9/*"},
                                                                                {206, "bytes 1-10/20"},
                                                                                {206, "bytes 0-10/20"},
                                                                                {206, "bytes */20"},
                                                                                {206, "nonsense"},
                                                                                {302, ""},
                                                                                {500, ""}}) {
        INFO(status << range);
        net::ClientResponse response;
        response.status = status;
        response.headers.add("Content-Range", range);
        response.body = pool.take(10);
        response.body->resize(10);
        CHECK_THROWS_AS(download([&](const net::ClientRequest&) { return response; }, {}), TransportFailure);
    }
}
