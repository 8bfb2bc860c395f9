#include "base/system/fork.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "support/forked_child.hpp"

using namespace shared_tensor;
using test::in_child;

TEST_CASE("a mark is of the process that made it, not of its children", "[process_mark]") {
    const ProcessMark mark;
    CHECK(mark.is_here());
    CHECK_FALSE(in_child([&] { return mark.is_here(); }));
    CHECK(in_child([] { return ProcessMark().is_here(); }));
    CHECK_FALSE(in_child([] {
        const ProcessMark mine;
        return in_child([&] { return mine.is_here(); });
    }));
    CHECK(mark.is_here());
}

TEST_CASE("A moment during a fork counts as before it: the child may have a copy of the memory", "[process_mark]") {
    const ForkMark before;
    std::optional<NoFork> held(std::in_place);
    std::jthread forking([] {
        const pid_t child = ::fork();
        if (child == 0) ::_exit(0);
        ::waitpid(child, nullptr, 0);
    });
    while (before.is_alone())
        std::this_thread::yield();
    const ForkMark during;  // the fork waits for `held`
    held.reset();
    forking.join();
    CHECK_FALSE(during.is_alone());
    CHECK(ForkMark().is_alone());
}

namespace {

struct Counted {
    explicit Counted(int& the_ends) : ends(the_ends) {}
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() { ++ends; }
    int& ends;
};

}  // namespace

TEST_CASE("each process has its own, and a child destroys only its own", "[of_this_process]") {
    int ends = 0;
    const auto make = [&] { return std::make_unique<Counted>(ends); };
    auto mine = std::make_unique<OfThisProcess<Counted>>();
    CHECK(mine->find() == nullptr);
    Counted* const first = &mine->get(make);
    CHECK(&mine->get(make) == first);
    CHECK(mine->find() == first);
    CHECK(in_child([&] { return mine->find() == nullptr; }));
    CHECK(in_child([&] { return &mine->get(make) != first && mine->find() != nullptr; }));
    CHECK(in_child([&] {
        mine.reset();
        return ends == 0;
    }));
    CHECK(in_child([&] {
        mine->get(make);
        mine.reset();
        return ends == 1;
    }));
    mine.reset();
    CHECK(ends == 1);
}

TEST_CASE("what is shared in its process is not destroyed in a child", "[of_this_process]") {
    int ends = 0;
    auto mine = shared_in_its_process(new Counted(ends));
    CHECK(in_child([&] {
        mine.reset();
        return ends == 0;
    }));
    mine.reset();
    CHECK(ends == 1);
}

TEST_CASE("a child has no copy of its parent's descriptors, whose other ends see nothing of it", "[process_fd]") {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    UniqueFd other(ends[1]);
    ProcessFd mine{UniqueFd(ends[0])}, moved;
    ProcessFd third(UniqueFd(::dup(2)));
    moved = std::move(mine);
    third.reset();
    CHECK_FALSE(mine);
    CHECK(moved.get() == ends[0]);
    const int number = moved.get();
    CHECK(in_child([&] {
        char byte = 0;
        return moved.get() == -1 && ::read(number, &byte, 1) < 0;
    }));
    char word = 'x';
    CHECK(::recv(other.get(), &word, 1, MSG_DONTWAIT) < 0);  // no end of file either
    REQUIRE(::write(moved.get(), "y", 1) == 1);
    CHECK(::recv(other.get(), &word, 1, MSG_DONTWAIT) == 1);
    CHECK(word == 'y');
    CHECK(ProcessFd::opened([] { return -1; }).get() == -1);
}
