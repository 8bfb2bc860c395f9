#include "base/system/process_mark.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

using namespace shared_tensor;

namespace {

/// What a forked child answers.
template <class Question>
bool in_child(Question question) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(question() ? 1 : 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status) == 1;
}

}  // namespace

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
