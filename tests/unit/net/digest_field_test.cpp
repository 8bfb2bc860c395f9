#include "net/message/fields.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace shared_tensor::net {
namespace {

TEST_CASE("a digest is wanted by its name and a weight", "[http]") {
    CHECK(wants_digest(kWantDigest));
    CHECK(wants_digest("sha-256=1, xxh3-128=9"));
    CHECK(wants_digest(" xxh3-128=1 ,sha-512=3"));
    for (const auto* no : {"", "xxh3-128", "xxh3-128=", "xxh3-128=0", "xxh3-128=10", "xxh3-128=x", "sha-256=5",
                           "my-xxh3-128=5", "xxh3-128-x=5", "xxh3-1280=5", ",,,"}) {
        INFO(no);
        CHECK_FALSE(wants_digest(no));
    }
    CHECK_FALSE(wants_digest(std::nullopt));
}

TEST_CASE("a digest is read as it was written", "[http]") {
    const auto value = Digest::of({});
    const std::string field = digest_field(value);
    CHECK(field == "xxh3-128=:maoG0wFHmNhgAcMkRo1Jfw==:");
    for (const std::string& one : {field, "sha-256=:AAAA:, " + field, field + ",sha-512=:AAAA:"}) {
        const auto found = parse_digest_field(one);
        CHECK(found.is_there);
        CHECK(found.value == value);
    }
}

TEST_CASE("a digest that is none is told from one that is not there", "[http]") {
    CHECK_FALSE(parse_digest_field(std::nullopt).is_there);
    CHECK_FALSE(parse_digest_field("sha-256=:AAAA:").is_there);
    for (const auto* wrong :
         {"xxh3-128=", "xxh3-128=:", "xxh3-128=::", "xxh3-128=:AAAA:", "xxh3-128=maoG0wFHmNhgAcMkRo1Jfw==",
          "xxh3-128=:maoG0wFHmNhgAcMkRo1Jf*==:", "xxh3-128=:maoG0wFHmNhgAcMkRo1Jfw==AAAA:"}) {
        INFO(wrong);
        CHECK(parse_digest_field(wrong).is_there);
        CHECK_FALSE(parse_digest_field(wrong).value.has_value());
    }
}

}  // namespace
}  // namespace shared_tensor::net
