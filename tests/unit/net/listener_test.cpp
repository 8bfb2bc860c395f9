#include "net/server/listener.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>

#include "base/bytes/ids.hpp"
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
    TestServer second(options);
    CHECK_NOTHROW(second.start());
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
    TestServer under_test(options);
    under_test.start();
    RawClient tcp(under_test.port());
    RawClient local(folder.socket());
    tcp.send(post("/", "tcp"));
    local.send(post("/", "unix"));
    CHECK(tcp.read_answer().body == "tcp");
    CHECK(local.read_answer().body == "unix");
}

}  // namespace
}  // namespace shared_tensor::test
