#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <optional>

#include "integration/memory/raw_channel.hpp"
#include "integration/server/shared_daemon.hpp"
#include "support/nginx.hpp"
#include "support/process.hpp"

using namespace shared_tensor::test;

namespace {

const std::string kSecret(40, 's');
const HeaderList kBearer{{"Authorization", "Bearer " + kSecret}};

/// Sends requests until no more of them fit, and reads no answer.
void flood(int connection) {
    std::string requests;
    for (int i = 0; i < 1000; ++i)
        requests += "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (int sent = 0; sent < (16 << 20);) {
        const ssize_t size = ::send(connection, requests.data(), requests.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (size <= 0) return;
        sent += static_cast<int>(size);
    }
}

/// Waits until the connection has an answer or was closed. False after 30 s.
bool was_answered(int connection) {
    pollfd answer{connection, POLLIN, 0};
    return ::poll(&answer, 1, 30'000) == 1;
}

int connect_to(int port) {
    const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        throw std::runtime_error("connect");
    return connection;
}

/// Another user of this machine, who opens connections and sends nothing, or requests without a token whose answers it
/// does not read, until this goes.
class OtherUser {
public:
    enum class Says { nothing, requests };
    OtherUser(int port, int connections, Says says = Says::nothing) {
        int ready[2], done[2];
        REQUIRE(::pipe(ready) == 0);
        REQUIRE(::pipe(done) == 0);
        child_ = ::fork();
        if (child_ == 0) {
            ::close(done[1]);
            ::_exit(stay(port, connections, says, ready[1], done[0]));
        }
        ::close(ready[1]);
        ::close(done[0]);
        done_.reset(done[1]);
        char byte = 0;
        came_ = ::read(ready[0], &byte, 1) == 1;
        ::close(ready[0]);
    }
    OtherUser(const OtherUser&) = delete;
    OtherUser& operator=(const OtherUser&) = delete;
    ~OtherUser() {
        done_.reset();
        ::waitpid(child_, nullptr, 0);
    }
    bool came() const { return came_; }

private:
    static int stay(int port, int connections, Says says, int ready, int done) {
        constexpr uid_t kNobody = 65534;
        if (::setresuid(kNobody, kNobody, kNobody) != 0) return 1;
        try {
            std::vector<int> open;  // until the process ends
            for (int i = 0; i < connections; ++i)
                open.push_back(connect_to(port));
            for (int round = 0; says == Says::requests && round < 3; ++round) {
                for (const int connection : open)
                    flood(connection);
            }
            const bool answered = says == Says::nothing || std::all_of(open.begin(), open.end(), was_answered);
            if (!answered) return 1;
            char byte = 'r';
            return ::write(ready, &byte, 1) == 1 && ::read(done, &byte, 1) == 0 ? 0 : 1;
        } catch (const std::exception&) {
            return 1;
        }
    }

    pid_t child_ = -1;
    shared_tensor::UniqueFd done_;
    bool came_ = false;
};

int health(int port, const HeaderList& headers = {}) {
    return http_request(port, "GET", "/healthz", {}, headers).status;
}

}  // namespace

TEST_CASE("Another user who opens all the connections that it can keeps the owner out of nothing",
          "[security][limits]") {
    if (::getuid() != 0) SKIP("needs root, to be somebody else");
    const OwnDaemon daemon({"--max-connections", "64"});
    for (int round = 0; round < 2; ++round) {
        const OtherUser other(daemon.port(), 300);
        REQUIRE(other.came());
        for (int i = 0; i < 20; ++i)
            CHECK(daemon.call("subtract", {3, 1}) == 2);
        CHECK(health(daemon.port()) == 200);
    }
    CHECK(health(daemon.port()) == 200);
}

TEST_CASE("With a limit of connections for one user, others take nothing of the owner's", "[security][limits]") {
    if (::getuid() != 0) SKIP("needs root, to be somebody else");
    const OwnDaemon daemon({"--max-connections", "64", "--max-client-connections", "8"});
    const OtherUser other(daemon.port(), 100);
    REQUIRE(other.came());
    CHECK(daemon.call("subtract", {3, 1}) == 2);
}

TEST_CASE("With tokens, clients that show none do not keep out those that do", "[security][limits]") {
    if (::getuid() != 0) SKIP("needs root, to be somebody else");
    const TokenDaemon daemon(token("a"), {"--max-connections", "64"});
    std::optional<Nginx> nginx;
    if (has_nginx()) nginx.emplace(daemon.port(), Nginx::Options{.user = "www-data"});
    const OtherUser other(daemon.port(), 300);
    REQUIRE(other.came());
    for (int i = 0; i < 20; ++i) {
        CHECK(daemon.call("subtract", {3, 1}, bearer('a')) == 2);
        if (nginx) CHECK(call(nginx->port(), "subtract", {3, 1}, bearer('a')) == 2);
    }
    CHECK(health(daemon.port()) == 401);
    CHECK(health(daemon.port(), bearer('a')) == 200);
}

TEST_CASE("With tokens, clients that show none and read no answer keep nobody out", "[security][limits]") {
    if (::getuid() != 0) SKIP("needs root, to be somebody else");
    TemporaryFolder folder;
    const std::string tokens = folder.write("tokens", "a:" + kSecret + "\n");
    Daemon daemon(with_plugins({"--token-file", tokens, "--max-connections", "32"}));
    if (!has_nginx()) SKIP("there is no nginx, whose connections show nobody until a request of theirs is admitted");
    const Nginx nginx(daemon.port(), Nginx::Options{.user = "www-data"});
    const OtherUser other(daemon.port(), 16, OtherUser::Says::requests);
    REQUIRE(other.came());
    for (int i = 0; i < 20; ++i)
        CHECK(call(nginx.port(), "subtract", {3, 1}, kBearer) == 2);
}

TEST_CASE("One token's sessions and local channels leave room for those of others", "[security][limits]") {
    const TokenDaemon daemon(token("a") + token("b"), {"--max-sessions", "4", "--max-local-channels", "8"});
    for (int i = 0; i < 2; ++i)
        CHECK(daemon.call("session.open", nullptr, bearer('b')).is_object());
    CHECK(daemon.code("session.open", nullptr, bearer('b')) == -32001);
    CHECK(daemon.call("session.open", nullptr, bearer('a')).is_object());

    const std::string path = daemon.call("server.info", nullptr, bearer('a'))["local_socket"];
    const auto opens = [](RawChannel& channel, char who) {
        const Json response = channel.ask("session.open", {{"token", secret_of(who)}});
        CHECK((response.contains("result") || code_of(response) == -32001));
        return response.contains("result");
    };
    std::vector<RawChannel> channels;
    for (int i = 0; i < 4; ++i)
        CHECK(opens(channels.emplace_back(path), 'b'));
    RawChannel rejected(path), free(path);
    CHECK_FALSE(opens(rejected, 'b'));
    CHECK(opens(free, 'a'));
    channels.pop_back();
    CHECK(eventually([&] { return opens(rejected, 'b'); }));
}

TEST_CASE("Clients take turns at the workers, and a full queue has a place for who has none", "[security][limits]") {
    const TokenDaemon daemon(token("a") + token("b"), {"--workers", "1", "--queue", "2"});
    const auto hold = [&](const char* name, char who) {
        return std::make_unique<PendingCall>(daemon.port(), "hold", Json::array({name}), bearer(who));
    };
    const auto runs = [&](const char* name) { return daemon.call("runs_of", {name}, bearer('a'))["started"] == 1; };
    const auto waiting = [&] {
        return daemon.call("server.info", nullptr, bearer('a'))["totals"]["workers"]["queued"];
    };
    std::vector<std::unique_ptr<PendingCall>> calls;
    calls.push_back(hold("b1", 'b'));
    REQUIRE(eventually([&] { return runs("b1"); }));
    calls.push_back(hold("b2", 'b'));
    REQUIRE(eventually([&] { return waiting() == 1; }));
    calls.push_back(hold("b3", 'b'));
    REQUIRE(eventually([&] { return waiting() == 2; }));
    CHECK(daemon.code("hold", {"b4"}, bearer('b')) == -32001);
    calls.push_back(hold("a1", 'a'));
    REQUIRE(eventually([&] { return waiting() == 3; }));
    CHECK(daemon.code("hold", {"a2"}, bearer('a')) == -32001);
    for (const char* next : {"b1", "b2", "a1", "b3"}) {
        CHECK(eventually([&] { return runs(next); }));
        if (next == std::string("a1")) CHECK_FALSE(runs("b3"));
        daemon.call("release", {next}, bearer('a'));
    }
}

TEST_CASE("One token's connections leave room for those of others", "[security][limits]") {
    const TokenDaemon daemon(token("a") + token("b"), {"--max-connections", "16"});
    std::vector<HttpPeer> peers;
    int rejected = 0;
    for (int i = 0; i < 12; ++i) {
        peers.emplace_back(daemon.port()).request("GET", "/healthz", {}, bearer('a'));
        const int status = peers.back().read().status;
        CHECK((status == 200 || status == 503));
        rejected += status == 503 ? 1 : 0;
    }
    CHECK(rejected == 4);  // half of all may be one token's
    CHECK(health(daemon.port(), bearer('b')) == 200);
}

TEST_CASE("Local channels without a session end in time, and lock nobody out", "[security][limits]") {
    struct Case {
        Words options;
        std::size_t silent;
    };
    for (const auto& [options, count] :
         {Case{{"--header-timeout", "2s"}, 1}, Case{{"--max-local-channels", "16", "--header-timeout", "1h"}, 40}}) {
        INFO(options[0]);
        const OwnDaemon daemon(options);
        RawChannel used(daemon.port());
        CHECK_FALSE(used.open().empty());
        std::vector<RawChannel> silent;
        for (std::size_t i = 0; i < count; ++i)
            silent.emplace_back(daemon.port());
        CHECK_FALSE(RawChannel(daemon.port()).open().empty());
        CHECK(silent.front().receive().is_null());
        CHECK_FALSE(used.ask("segment.recycle", {{"segments", Json::array()}}).is_null());
    }
}
