#include "net/server/listener.hpp"

#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "net/stream/stream.hpp"
#include "raw_client.hpp"

namespace shared_tensor::test {
namespace {

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

TEST_CASE("a user who closed already does not pass for root", "[http]") {
    if (::getuid() != 0) SKIP("only root can become another user");
    RawServer server;
    {
        const OtherUser other(false, [&] {
            RawClient theirs(server.port());
            theirs.send(get("/"));
        });
    }
    auto accepted = server.accept();
    CHECK(user_behind(accepted.fd()) == std::nullopt);
}

TEST_CASE("a user who closed with unread bytes does not pass for root", "[http]") {
    if (::getuid() != 0) SKIP("only root can become another user");
    RawServer server;
    const OtherUser other(false, [&] {
        RawClient theirs(server.port());
        theirs.send(get("/"));
        theirs.reset();
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
    sockaddr_storage address{};
    auto& four = reinterpret_cast<sockaddr_in&>(address);
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(0x7f000001);
    CHECK(net::is_loopback(address));
    four.sin_addr.s_addr = htonl(0x7fffffff);
    CHECK(net::is_loopback(address));
    four.sin_addr.s_addr = htonl(0x0a000001);
    CHECK_FALSE(net::is_loopback(address));
    address = {};
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_loopback;
    CHECK(net::is_loopback(address));
    six.sin6_addr.s6_addr[0] = 0x20;
    CHECK_FALSE(net::is_loopback(address));
    six.sin6_addr = {};
    six.sin6_addr.s6_addr[10] = six.sin6_addr.s6_addr[11] = 0xff;
    six.sin6_addr.s6_addr[12] = 127;
    CHECK(net::is_loopback(address));
}

}  // namespace
}  // namespace shared_tensor::test
