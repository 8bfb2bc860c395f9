#include "net/server/listener.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/bytes/ids.hpp"
#include "net/stream/stream.hpp"
#include "raw_client.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using net::Listener;

/// A folder that goes away with the test.
struct TemporaryFolder {
    TemporaryFolder() { std::filesystem::create_directory(path); }
    ~TemporaryFolder() { std::filesystem::remove_all(path); }
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("st-" + random_hex(8));
    std::string socket() const { return (path / "s").string(); }
};

net::ServerOptions unix_only(const std::string& path) {
    net::ServerOptions options;
    options.host.clear();
    options.unix_socket = path;
    return options;
}

TEST_CASE("a port that is taken is an error that names address and port", "[http]") {
    TestServer first;
    first.start();
    net::ServerOptions options;
    options.port = first.port();
    TestServer second(options);
    try {
        second.start();
        FAIL("two servers on one port");
    } catch (const std::system_error& error) {
        CHECK(error.code() == std::errc::address_in_use);
        CHECK_THAT(error.what(), ContainsSubstring("127.0.0.1:" + std::to_string(first.port())));
    }
}

TEST_CASE("a port is free again as soon as its server stopped, whatever its clients did", "[http]") {
    auto first = std::make_unique<TestServer>();
    first->start();
    net::ServerOptions options;
    options.port = first->port();
    RawClient client(first->port());
    client.send(post("/", "x"));
    client.read_answer();
    first.reset();  // the server closes first: its end of the connection is in TIME_WAIT
    CHECK_NOTHROW(EchoServer(options));
}

TEST_CASE("an address that is not ours, or none, is an error that names it", "[http]") {
    CHECK_THROWS_WITH(Listener::tcp("192.0.2.1", 0), ContainsSubstring("192.0.2.1:0"));
    CHECK_THROWS_WITH(Listener::tcp("no.such.host.invalid", 1), ContainsSubstring("no.such.host.invalid:1"));
    CHECK_THROWS_WITH(Listener::unix_socket("/" + std::string(200, 'x')), ContainsSubstring("107"));
    CHECK_THROWS_WITH(Listener::unix_socket("/no/such/folder/s"), ContainsSubstring("/no/such/folder/s"));
}

TEST_CASE("a server listens on IPv6 as well", "[http]") {
    net::ServerOptions options;
    options.host = "::1";
    std::optional<std::uint32_t> uid;
    TestServer under_test(options);
    try {
        under_test.start();
    } catch (const std::system_error&) {
        SKIP("this machine has no IPv6");
    }
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream&) {
        uid = request.head.peer.uid;
        return net::Response::json(200, request.head.peer.ip);
    };
    RawClient client(under_test.port(), "::1");
    client.send(get("/"));
    CHECK(client.read_answer().body == "::1");
    CHECK(uid == ::getuid());
}

TEST_CASE("a Unix socket is the owner's alone, and its file goes with the server", "[http]") {
    const TemporaryFolder folder;
    const mode_t before = ::umask(0);
    {
        TestServer under_test(unix_only(folder.socket()));
        under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
            const auto& peer = request.head.peer;
            const bool known = peer.unix_socket && peer.uid == ::getuid() && peer.pid == ::getpid() && peer.ip.empty();
            return net::Response::json(200, known ? "known" : "unknown");
        };
        under_test.start();
        CHECK(under_test.port() == 0);
        struct stat file {};
        REQUIRE(::stat(folder.socket().c_str(), &file) == 0);
        CHECK((file.st_mode & 0777) == 0600);
        RawClient client(folder.socket());
        client.send(get("/"));
        CHECK(client.read_answer().body == "known");
        under_test.server.drain();
        CHECK_FALSE(std::filesystem::exists(folder.socket()));
    }
    ::umask(before);
}

TEST_CASE("the socket file of a dead server is replaced, that of a live one is an error", "[http]") {
    const TemporaryFolder folder;
    const pid_t child = ::fork();
    if (child == 0) {
        const Listener listener = Listener::unix_socket(folder.socket());
        ::_exit(0);  // dies without removing the file
    }
    ::waitpid(child, nullptr, 0);
    REQUIRE(std::filesystem::exists(folder.socket()));
    TestServer first(unix_only(folder.socket()));
    first.start();
    TestServer second(unix_only(folder.socket()));
    CHECK_THROWS_WITH(second.start(), ContainsSubstring(folder.socket()));
    RawClient client(folder.socket());
    client.send(post("/", "first lives"));
    CHECK(client.read_answer().body == "first lives");
}

TEST_CASE("a file that is no socket is left alone", "[http]") {
    const TemporaryFolder folder;
    std::ofstream(folder.socket()) << "precious";
    CHECK_THROWS_WITH(Listener::unix_socket(folder.socket()), ContainsSubstring("is no socket"));
    CHECK(std::filesystem::exists(folder.socket()));
}

TEST_CASE("a socket file that somebody else put in our place is not removed", "[http]") {
    const TemporaryFolder folder;
    {
        const Listener listener = Listener::unix_socket(folder.socket());
        std::filesystem::rename(folder.socket(), folder.path / "away");
        std::ofstream(folder.socket()) << "other";
    }
    CHECK(std::filesystem::exists(folder.socket()));
}

TEST_CASE("TCP and a Unix socket are served together", "[http]") {
    const TemporaryFolder folder;
    net::ServerOptions options;
    options.unix_socket = folder.socket();
    EchoServer under_test(options);
    RawClient tcp(under_test.port());
    RawClient local(folder.socket());
    tcp.send(post("/", "tcp"));
    local.send(post("/", "unix"));
    CHECK(tcp.read_answer().body == "tcp");
    CHECK(local.read_answer().body == "unix");
}

std::optional<std::uint32_t> user_behind(int fd) { return net::PeerUsers().of(fd).uid; }

constexpr uid_t kSomebodyElse = 65534;

/// Runs `act` in a child that is another user; answers once the child has ended, or at its sign when it `stays`.
class OtherUser {
public:
    OtherUser(bool stays, const std::function<void()>& act) {
        int ready[2], done[2];
        REQUIRE(::pipe(ready) == 0);
        REQUIRE(::pipe(done) == 0);
        child_ = ::fork();
        if (child_ == 0) {
            ::close(done[1]);
            if (::setuid(kSomebodyElse) != 0) ::_exit(1);
            act();
            char byte = 'r';
            if (stays && ::write(ready[1], &byte, 1) == 1 && ::read(done[0], &byte, 1) == 0) ::_exit(0);
            ::_exit(0);
        }
        ::close(ready[1]);
        ::close(done[0]);
        done_.reset(done[1]);
        char byte;
        [[maybe_unused]] const ssize_t got = ::read(ready[0], &byte, 1);  // end of file when it ended
        ::close(ready[0]);
        if (!stays) end();
    }
    OtherUser(const OtherUser&) = delete;
    OtherUser& operator=(const OtherUser&) = delete;
    ~OtherUser() { end(); }

private:
    void end() {
        done_.reset();
        if (child_ > 0) ::waitpid(child_, nullptr, 0);
        child_ = -1;
    }
    pid_t child_;
    UniqueFd done_;
};

TEST_CASE("the kernel says which user is behind a loopback connection", "[http]") {
    RawServer server;
    RawClient ours(server.port());
    CHECK(user_behind(server.accept().fd()) == ::getuid());

    if (::getuid() != 0) SKIP("only root can become another user");
    std::optional<RawClient> theirs;
    const OtherUser other(true, [&] { theirs.emplace(server.port()); });
    CHECK(user_behind(server.accept().fd()) == kSomebodyElse);
}

TEST_CASE("a user who closed already, with or without unread bytes, does not pass for root", "[http]") {
    if (::getuid() != 0) SKIP("only root can become another user");
    const bool reset = GENERATE(false, true);
    RawServer server;
    const OtherUser other(false, [&] {
        RawClient theirs(server.port());
        theirs.send(get("/"));
        if (reset) theirs.reset();
    });
    auto accepted = server.accept();
    CHECK(user_behind(accepted.fd()) == std::nullopt);
}

TEST_CASE("a client that closed only its sending side is still known", "[http]") {
    RawServer server;
    RawClient ours(server.port());
    ours.half_close();
    CHECK(user_behind(server.accept().fd()) == ::getuid());
}

TEST_CASE("loopback is told from other addresses", "[http]") {
    const auto is_loopback = [](const char* ip) {
        sockaddr_storage address{};
        auto& four = reinterpret_cast<sockaddr_in&>(address);
        auto& six = reinterpret_cast<sockaddr_in6&>(address);
        const bool v6 = std::string_view(ip).find(':') != std::string_view::npos;
        address.ss_family = v6 ? AF_INET6 : AF_INET;
        REQUIRE(::inet_pton(address.ss_family, ip, v6 ? static_cast<void*>(&six.sin6_addr) : &four.sin_addr) == 1);
        return net::is_loopback(address);
    };
    for (const char* ip : {"127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"})
        CHECK(is_loopback(ip));
    for (const char* ip : {"10.0.0.1", "2000::1", "::ffff:10.0.0.1"})
        CHECK_FALSE(is_loopback(ip));
}

}  // namespace
}  // namespace shared_tensor::test
