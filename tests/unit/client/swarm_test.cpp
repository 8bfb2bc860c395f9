#include "client/transfers/swarm.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes/digest.hpp"
#include "base/bytes/ids.hpp"
#include "base/system/unique_fd.hpp"
#include "client/transfers/relay.hpp"

using namespace shared_tensor;

namespace {

using ReceiverJson = nlohmann::json;

constexpr std::uint64_t kPiece = std::uint64_t{1} << 20, kPieces = 16;

/// A server of one file and one receiver, which it forgets at one of the questions. Any thread.
class ForgetfulServer {
public:
    explicit ForgetfulServer(int forgets_at) : forgets_at_(forgets_at) {}

    std::string answer(const std::string& text) {
        const std::lock_guard lock(mutex_);
        const ReceiverJson report = ReceiverJson::parse(text);
        if (++questions_ == forgets_at_) name_.clear();
        if (name_.empty()) {
            name_ = "receiver " + std::to_string(questions_);
            has_.clear();
        }
        if (report.value("receiver", "") == name_) {
            for (const auto& piece : report["got"])
                has_.insert(piece.get<std::uint64_t>());
        }
        ReceiverJson answer{
            {"receiver", name_}, {"piece_bytes", kPiece}, {"missing", kPieces - has_.size()}, {"unfinished", 0}};
        for (std::uint64_t piece = 0; piece < kPieces && !answer.contains("piece"); ++piece)
            if (!has_.contains(piece)) answer["piece"] = piece;
        return answer.dump();
    }
    std::size_t known() const { return has_.size(); }

private:
    const int forgets_at_;
    std::mutex mutex_;
    int questions_ = 0;
    std::string name_;
    std::set<std::uint64_t> has_;
};

std::shared_ptr<PooledBuffer> file_in(std::vector<std::byte>& memory) {
    auto file = std::make_shared<PooledBuffer>(std::shared_ptr<const void>(), memory.data(), memory.size());
    file->resize(memory.size());
    return file;
}

/// A server whose only piece another receiver has, until that is told to have sent other bytes.
class ServerBesideRelay {
public:
    ServerBesideRelay(const client::Relay& relay, std::string digest)
        : from_("http://127.0.0.1:" + std::to_string(relay.port()) + "/swarm/" + relay.key()),
          digest_(std::move(digest)) {}

    std::string answer(const std::string& text) {
        const std::lock_guard lock(mutex_);
        const ReceiverJson report = ReceiverJson::parse(text);
        wanted_ = report.value("digest", "sha-256");
        if (!report["got"].empty()) is_there_ = true;
        if (!report["lost"].empty()) {
            is_lost_ = true;
            is_given_ = false;
        }
        ReceiverJson answer{
            {"receiver", "r"}, {"piece_bytes", kPiece}, {"missing", is_there_ ? 0 : 1}, {"unfinished", 0}};
        if (is_there_ || is_given_) return answer.dump();
        answer["piece"] = 0;
        if (!is_lost_) answer.update({{"from", from_}, {"digest", digest_}});
        is_given_ = true;
        return answer.dump();
    }
    std::string wanted() const { return wanted_; }
    bool is_lost() const { return is_lost_; }

private:
    const std::string from_, digest_;
    std::mutex mutex_;
    std::string wanted_;
    bool is_there_ = false, is_lost_ = false, is_given_ = false;
};

}  // namespace

TEST_CASE("a piece of another receiver is checked, by XXH3 only if that is trusted", "[client][swarm]") {
    std::vector<std::byte> content(kPiece);
    for (std::size_t i = 0; i < content.size(); ++i)
        content[i] = static_cast<std::byte>(i * 7);
    std::vector<std::byte> passed_on = content;
    const bool is_damaged = GENERATE(false, true), trusted = GENERATE(false, true), has_sha256 = GENERATE(false, true);
    INFO(is_damaged << trusted << has_sha256);
    const bool is_good = !is_damaged && (trusted || has_sha256);
    if (is_damaged) passed_on[kPiece / 2] ^= std::byte{1};
    PullOptions options;
    options.swarm = SwarmOptions{.host = "127.0.0.1", .trusted = trusted};
    client::Relay relay(*options.swarm, {}, file_in(passed_on));
    relay.add(0, kPiece);
    ServerBesideRelay server(relay, has_sha256 ? hex(Sha256::of(content)) : hex(Digest::of(content)));
    std::vector<std::byte> memory(kPiece);
    int fetched = 0;
    const client::Swarm::Source source{
        [&](const std::string& report, std::optional<SteadyTime>) { return server.answer(report); },
        [](const net::ByteRange&) { return false; },
        [&](const net::ByteRange&) {
            ++fetched;
            memory = content;
        },
        [](const net::ByteRange&) {}};
    client::Swarm(options, {}, source, file_in(memory)).run();
    CHECK(server.wanted() == (trusted ? "xxh3-128" : "sha-256"));
    CHECK(server.is_lost() == !is_good);
    CHECK(fetched == (is_good ? 0 : 1));
    CHECK(memory == content);
}

TEST_CASE("a receiver passes pieces on over IPv4 and IPv6", "[client][swarm]") {
    std::vector<std::byte> content(kPiece, std::byte{7});
    client::Relay relay({}, {}, file_in(content));
    relay.add(0, kPiece);
    for (const char* const host : {"127.0.0.1", "[::1]"}) {
        const std::string url = std::string("http://") + host + ":" + std::to_string(relay.port());
        net::ClientRequest request;
        request.method = "GET";
        request.path = "/swarm/" + relay.key() + "/0";
        request.deadline = real_clock().now() + std::chrono::seconds(10);
        net::Client client({.endpoint = net::Endpoint::parse(url)});
        CHECK(std::ranges::equal(client.send(request).body->bytes(), content));
    }
}

TEST_CASE("a receiver that the server of a swarm has forgotten goes on as a new one", "[client][swarm]") {
    std::vector<std::byte> memory(kPieces * kPiece);
    PullOptions options;
    options.swarm = SwarmOptions{.host = "127.0.0.1"};
    for (const int forgets_at : {2, 3, 12}) {
        ForgetfulServer server(forgets_at);
        std::mutex mutex;
        std::multiset<std::uint64_t> fetched, under_way;
        std::size_t at_once = 0;
        const client::Swarm::Source source{
            [&](const std::string& report, std::optional<SteadyTime>) { return server.answer(report); },
            [&](const net::ByteRange& range) { return range.first == 0; },
            [&](const net::ByteRange& range) {
                const std::uint64_t piece = range.first / kPiece;
                {
                    const std::lock_guard lock(mutex);
                    fetched.insert(piece);
                    under_way.insert(piece);
                    at_once = std::max(at_once, under_way.count(piece));
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
                const std::lock_guard lock(mutex);
                under_way.erase(under_way.find(piece));
            },
            [](const net::ByteRange&) {}};
        client::Swarm(options, {}, source, file_in(memory)).run();
        CHECK(server.known() == kPieces);
        CHECK(!fetched.contains(0));
        CHECK(at_once == 1);  // another fetch could replace bytes that were checked
        CHECK(std::set<std::uint64_t>(fetched.begin(), fetched.end()).size() == kPieces - 1);
    }
}

TEST_CASE("a slow receiver delays neither a stop nor the error of another thread", "[client][swarm]") {
    enum class End { stop, deadline, failure };
    const End end = GENERATE(End::stop, End::deadline, End::failure);
    std::vector<std::byte> memory(kPieces * kPiece);
    PullOptions options;
    options.swarm = SwarmOptions{.host = "127.0.0.1"};
    UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // takes connections and never answers
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(silent.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(silent.get(), 16) == 0);
    REQUIRE(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    const ReceiverJson first{
        {"receiver", "r"},    {"piece_bytes", kPiece},
        {"missing", kPieces}, {"unfinished", 0},
        {"piece", 0},         {"from", "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/swarm/key"},
        {"digest", "0"}};
    std::stop_source stop;
    std::atomic<int> questions{0};
    const auto begun = real_clock().now();
    const auto is_over = [&] { return real_clock().now() - begun > std::chrono::milliseconds(100); };
    const auto ask = [&](const std::string& report, std::optional<SteadyTime>) -> std::string {
        if (questions++ == 0) return first.dump();
        const bool is_lost = !ReceiverJson::parse(report)["lost"].empty();
        if (is_lost || (end == End::failure && is_over())) throw std::runtime_error("the transfer has ended");
        if (end == End::stop && is_over()) stop.request_stop();
        ReceiverJson waits = first;
        waits.erase("piece");
        return waits.dump();
    };
    client::Swarm::Source source{ask, [](const net::ByteRange&) { return false; }, [](const net::ByteRange&) {},
                                 [](const net::ByteRange&) {}};
    if (end == End::deadline) source.deadline = begun + std::chrono::milliseconds(100);
    source.stop = stop.get_token();
    client::Swarm swarm(options, {}, source, file_in(memory));
    CHECK_THROWS_AS(swarm.run(), std::runtime_error);
    CHECK(real_clock().now() - begun < std::chrono::seconds(9));
}

TEST_CASE("answers about a swarm that contradict each other or the file are rejected", "[client][swarm]") {
    std::vector<std::byte> memory(kPieces * kPiece);
    PullOptions options;
    options.swarm = SwarmOptions{.host = "127.0.0.1"};
    const ReceiverJson good{{"receiver", "r"}, {"piece_bytes", kPiece}, {"missing", kPieces}, {"unfinished", 0}};
    const auto with = [&](const char* name, std::uint64_t value, std::uint64_t piece = 0) {
        ReceiverJson answer = good;
        answer["piece"] = piece;
        answer[name] = value;
        return answer.dump();
    };
    const auto [first, later] = GENERATE_COPY(table<std::string, std::string>({
        {with("piece_bytes", 4 * kPiece), with("piece_bytes", kPiece, 7)},
        {with("piece", 0), with("piece", kPieces)},
        {with("piece", 0), with("piece", std::uint64_t{1} << 44)},
        {with("missing", 0), with("missing", 0)},
    }));
    std::atomic<int> questions{0};
    const client::Swarm::Source source{
        [&](const std::string&, std::optional<SteadyTime>) { return questions++ == 0 ? first : later; },
        [](const net::ByteRange&) { return false; }, [](const net::ByteRange&) {}, [](const net::ByteRange&) {}};
    client::Swarm swarm(options, {}, source, file_in(memory));
    CHECK_THROWS_AS(swarm.run(), ProtocolFailure);
}
