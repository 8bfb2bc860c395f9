#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>

#include "unit/local/channel/channel_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// A process that connects, forks a child of its own that keeps the socket, and waits to be killed. Nothing but system
/// calls: it is forked from a process with threads.
class Holder {
public:
    explicit Holder(const std::string& path) {
        const sockaddr_un address = unix_address(path);
        std::array<int, 2> told{};
        REQUIRE(::pipe(told.data()) == 0);
        pid = ::fork();
        if (pid == 0) {
            const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
            if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) ::_exit(1);
            const pid_t child = ::fork();
            if (child == 0) {
                for (;;)
                    ::pause();
            }
            if (::write(told[1], &child, sizeof child) != sizeof child) ::_exit(1);
            for (;;)
                ::pause();
        }
        ::close(told[1]);
        const bool heard = ::read(told[0], &grandchild, sizeof grandchild) == sizeof grandchild;
        ::close(told[0]);
        REQUIRE(heard);
    }
    void kill() {
        if (pid > 0) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
        pid = -1;
    }
    ~Holder() {
        kill();
        if (grandchild > 0) ::kill(grandchild, SIGKILL);
    }
    pid_t pid = -1, grandchild = -1;
};

}  // namespace

TEST_CASE("the end of a process is told at once, though its child still holds the socket", "[local]") {
    ChannelUnderTest test;
    Holder holder(test.options.path);
    REQUIRE(test.recorder.opens.wait());
    CHECK(test.recorder.closes.count() == 0);
    const local::Peer peer = test.recorder.state.with([](const Recorder::State& state) { return state.peers.at(0); });
    CHECK(peer.pid == holder.pid);
    holder.kill();
    CHECK(test.recorder.closes.wait());
    CHECK(::kill(holder.grandchild, 0) == 0);  // it lives, and so does its copy of the socket
}

TEST_CASE("the channel of a forked process is its parent's", "[local]") {
    ChannelUnderTest test;
    ClientEnd client(test.options.path);
    REQUIRE(test.recorder.opens.wait());
    const pid_t child = ::fork();
    if (child == 0) ::_exit(client.tell("from the child") ? 1 : 0);
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(test.recorder.closes.count() == 0);
    CHECK(client.tell("from the parent"));
    REQUIRE(test.recorder.packets.wait());
    test.recorder.state.with([](const Recorder::State& state) {
        CHECK(state.packets.at(0).text.find("from the parent") != std::string::npos);
    });
}
