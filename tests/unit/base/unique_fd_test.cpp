#include "base/system/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <utility>

using shared_tensor::UniqueFd;

namespace {

int open_something() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

}  // namespace

TEST_CASE("a descriptor is closed with its owner", "[util][fd]") {
    const int fd = open_something();
    {
        const UniqueFd owner(fd);
        CHECK(owner);
        CHECK(is_open(fd));
    }
    CHECK_FALSE(is_open(fd));
}

TEST_CASE("an owner of nothing is false and closes nothing", "[util][fd]") {
    const UniqueFd nothing;
    CHECK_FALSE(nothing);
    CHECK(nothing.get() == -1);
}

TEST_CASE("a moved descriptor has one owner", "[util][fd]") {
    UniqueFd first(open_something());
    const int fd = first.get();
    UniqueFd second(std::move(first));
    CHECK_FALSE(first);
    CHECK(second.get() == fd);
    UniqueFd third(open_something());
    const int replaced = third.get();
    third = std::move(second);
    CHECK(third.get() == fd);
    CHECK_FALSE(is_open(replaced));
    CHECK(is_open(fd));
}

TEST_CASE("assigning an owner to itself keeps the descriptor", "[util][fd]") {
    UniqueFd owner(open_something());
    auto& same = owner;
    owner = std::move(same);
    CHECK(is_open(owner.get()));
}

TEST_CASE("a released descriptor stays open", "[util][fd]") {
    int fd = -1;
    {
        UniqueFd owner(open_something());
        fd = owner.release();
    }
    CHECK(is_open(fd));
    UniqueFd background_executor(fd);
    background_executor.reset();
    CHECK_FALSE(is_open(fd));
}
