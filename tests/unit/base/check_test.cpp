#include "base/bytes/check.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using Catch::Matchers::ContainsSubstring;

TEST_CASE("a check that does not hold names the place, the expression and the reason, and asks once", "[util][check]") {
    int asked = 0;
    const auto check = [&](bool holds) { SHARED_TENSOR_CHECK((++asked, holds), "so it goes"); };
    CHECK_NOTHROW(check(true));
    CHECK_THROWS_WITH(check(false), ContainsSubstring("check_test.cpp:") &&
                                        ContainsSubstring("(++asked, holds) does not hold: so it goes"));
    CHECK(asked == 2);
}

TEST_CASE("a system call gives its result, or throws errno's code and text behind ours", "[util][check]") {
    CHECK(SHARED_TENSOR_CHECK_ERRNO(0, "never") == 0);
    const auto fails = [] {
        errno = ENOENT;
        return -1;
    };
    try {
        SHARED_TENSOR_CHECK_ERRNO(fails(), "open the door");
        FAIL("it did not throw");
    } catch (const std::system_error& error) {
        CHECK(error.code().value() == ENOENT);
        CHECK(std::string(error.what()) == "open the door: No such file or directory");
    }
}
