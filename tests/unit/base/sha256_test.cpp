#include "base/bytes/digest.hpp"

#include <catch2/catch_test_macros.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes/ids.hpp"

using namespace shared_tensor;

namespace {

std::string digest(std::string_view text) { return hex(sha256_of(std::as_bytes(std::span(text)))); }

}  // namespace

TEST_CASE("the digests are those of FIPS 180-2", "[util]") {
    CHECK(digest("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(digest("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
