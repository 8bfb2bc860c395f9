#include "base/system/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <utility>

using shared_tensor::UniqueFd;

namespace {

UniqueFd opened() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

}  // namespace

TEST_CASE("a descriptor is closed with its owner, of which there is one, unless it was released", "[util][fd]") {
    CHECK_FALSE(UniqueFd());
    int released = -1, kept = -1;
    {
        UniqueFd first = opened(), third = opened(), fourth = opened();
        kept = first.get();
        const int replaced = third.get();
        UniqueFd second(std::move(first));
        CHECK_FALSE(first);
        third = std::move(second);
        CHECK(third.get() == kept);
        CHECK_FALSE(is_open(replaced));
        auto& same = third;
        third = std::move(same);
        CHECK(is_open(kept));
        released = fourth.release();
    }
    CHECK_FALSE(is_open(kept));
    CHECK(is_open(released));
    UniqueFd(released).reset();
    CHECK_FALSE(is_open(released));
}
