#include "base/bytes/check.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cerrno>
#include <string>

using Catch::Matchers::ContainsSubstring;

namespace {

std::string message_of(bool holds, int& asked) {
    try {
        SHARED_TENSOR_CHECK((++asked, holds), "so it goes");
        return {};
    } catch (const std::logic_error& error) {
        return error.what();
    }
}

int fails_with(int code) {
    errno = code;
    return -1;
}

}  // namespace

TEST_CASE("a check that holds does nothing, and asks once", "[util][check]") {
    int asked = 0;
    CHECK(message_of(true, asked).empty());
    CHECK(asked == 1);
}

TEST_CASE("a check that does not hold names the place, the expression and the reason", "[util][check]") {
    int asked = 0;
    const auto message = message_of(false, asked);
    CHECK_THAT(message, ContainsSubstring("check_test.cpp:"));
    CHECK_THAT(message, ContainsSubstring("(++asked, holds) does not hold: so it goes"));
}

TEST_CASE("a system call that works gives its result", "[util][check]") {
    CHECK(SHARED_TENSOR_CHECK_ERRNO(42, "never") == 42);
    CHECK(SHARED_TENSOR_CHECK_ERRNO(0, "never") == 0);
}

TEST_CASE("a system call that fails throws errno's code and text behind ours", "[util][check]") {
    try {
        SHARED_TENSOR_CHECK_ERRNO(fails_with(ENOENT), "open the door");
        FAIL("it did not throw");
    } catch (const std::system_error& error) {
        CHECK(error.code().value() == ENOENT);
        CHECK(std::string(error.what()) == "open the door: No such file or directory");
    }
}
