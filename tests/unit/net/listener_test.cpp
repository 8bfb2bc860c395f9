#include "net/server/listener.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>

#include "support/forked_child.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using net::Listener;

net::ServerOptions unix_only(const std::string& path) {
    net::ServerOptions options;
    options.host.clear();
    options.unix_socket = path;
    return options;
}

TEST_CASE("a port that is taken is an error that names address and port, and is free again once its server stopped",
          "[http]") {
    auto first = std::make_unique<EchoServer>();
    net::ServerOptions options;
    options.port = first->port();
    RawClient client(options.port);
    client.send(post("/", "x"));
    client.read_answer();
    try {
        const EchoServer second(options);
        FAIL("two servers on one port");
    } catch (const std::system_error& error) {
        CHECK(error.code() == std::errc::address_in_use);
        CHECK_THAT(error.what(), ContainsSubstring("127.0.0.1:" + std::to_string(options.port)));
    }
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
        EchoServer under_test(unix_only(folder.file("s")));
        under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
            const auto& peer = request.head.peer;
            const bool known = peer.unix_socket && peer.uid == ::getuid() && peer.pid == ::getpid() && peer.ip.empty();
            return net::Response::json(200, known ? "known" : "unknown");
        };
        CHECK(under_test.port() == 0);
        struct stat file {};
        REQUIRE(::stat(folder.file("s").c_str(), &file) == 0);
        CHECK((file.st_mode & 0777) == 0600);
        RawClient client(folder.file("s"));
        client.send(get("/"));
        CHECK(client.read_answer().body == "known");
        under_test.server.drain();
        CHECK_FALSE(std::filesystem::exists(folder.file("s")));
    }
    ::umask(before);
}

TEST_CASE("the socket file of a dead server is replaced, that of a live one is an error", "[http]") {
    const TemporaryFolder folder;
    CHECK(in_child([&] {  // dies without removing the file
        new Listener(Listener::unix_socket(folder.file("s")));
        return true;
    }));
    REQUIRE(std::filesystem::exists(folder.file("s")));
    const EchoServer first(unix_only(folder.file("s")));
    CHECK_THROWS_WITH(EchoServer(unix_only(folder.file("s"))), ContainsSubstring(folder.file("s")));
    RawClient client(folder.file("s"));
    client.send(post("/", "first lives"));
    CHECK(client.read_answer().body == "first lives");
}

TEST_CASE("a file that is no socket is left alone, and one that was put in our place is not removed", "[http]") {
    const TemporaryFolder folder;
    const std::string precious = folder.write("precious", "x");
    CHECK_THROWS_WITH(Listener::unix_socket(precious), ContainsSubstring("is no socket"));
    CHECK(std::filesystem::exists(precious));
    {
        const Listener listener = Listener::unix_socket(folder.file("s"));
        std::filesystem::rename(folder.file("s"), folder.file("away"));
        folder.write("s", "other");
    }
    CHECK(std::filesystem::exists(folder.file("s")));
}

TEST_CASE("TCP and a Unix socket are served together, which stays plain beside TLS", "[http][tls]") {
    const TemporaryFolder folder;
    net::ServerOptions options;
    options.unix_socket = folder.file("s");
    SafeServer under_test(options);
    std::array clients = {std::make_unique<RawClient>(folder.file("s")), under_test.raw_client()};
    for (const auto& client : clients) {
        client->send(post("/", "x"));
        CHECK(client->read_answer().body == "x");
    }
}

std::optional<std::uint32_t> user_behind(int fd) { return net::PeerUsers().of(fd).uid; }

constexpr uid_t kSomebodyElse = 65534;

void become_somebody_else() { expect(::setuid(kSomebodyElse) == 0, "another user"); }

TEST_CASE("the kernel says which user is behind a loopback connection", "[http]") {
    RawServer server;
    RawClient ours(server.port());
    CHECK(user_behind(server.accept().fd()) == ::getuid());

    if (::getuid() != 0) SKIP("only root can become another user");
    const Pipe ready, done;
    ForkedChild other([&] {
        become_somebody_else();
        const RawClient theirs(server.port());
        ready.tell();
        done.wait();
    });
    ready.wait();
    CHECK(user_behind(server.accept().fd()) == kSomebodyElse);
    done.tell();
    CHECK(other.fault().empty());
}

TEST_CASE("a user who closed already, with or without unread bytes, does not pass for root", "[http]") {
    if (::getuid() != 0) SKIP("only root can become another user");
    const bool reset = GENERATE(false, true);
    RawServer server;
    CHECK(error_in_child([&] {
              become_somebody_else();
              RawClient theirs(server.port());
              theirs.send(get("/"));
              if (reset) theirs.reset();
          }).empty());
    CHECK(user_behind(server.accept().fd()) == std::nullopt);
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
