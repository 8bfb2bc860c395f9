#include "net/message/fields.hpp"

#include <catch2/catch_test_macros.hpp>

#include "net/message/text.hpp"

using namespace shared_tensor;
using net::RangeRequest;
using Kind = net::RangeRequest::Kind;

namespace {

/// "whole", "none" or "first+count"
std::string requested(std::string_view field, std::uint64_t size) {
    const RangeRequest got = net::parse_range(field, size);
    if (got.kind == Kind::whole) return "whole";
    if (got.kind == Kind::not_there) return "none";
    return std::to_string(got.part.first) + "+" + std::to_string(got.part.count);
}

std::string text_of(const std::vector<net::BodyPart>& parts) {
    std::string text;
    for (const auto& part : parts)
        text.append(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
    return text;
}

}  // namespace

TEST_CASE("one range is read as RFC 9110 says, and one that is not there is told from what is no range",
          "[http][range]") {
    const struct {
        const char* field;
        std::uint64_t size;
        const char* part;
    } table[] = {
        {"bytes=0-9", 100, "0+10"},   {"bytes=90-", 100, "90+10"}, {"bytes=90-1000", 100, "90+10"},
        {"bytes=99-99", 100, "99+1"}, {"bytes=-5", 100, "95+5"},   {"bytes=-500", 100, "0+100"},
        {"BYTES= 0-9", 100, "0+10"},  {"bytes=100-", 100, "none"}, {"bytes=-0", 100, "none"},
        {"bytes=0-", 0, "none"},      {"bytes=-1", 0, "none"},     {"bytes=0-18446744073709551615", 100, "0+100"},
    };
    for (const auto& [field, size, part] : table) {
        CAPTURE(field);
        CHECK(requested(field, size) == part);
    }
    for (const char* field : {"", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-4", "bytes=0-9,20-29", "rows=0-9",
                              "bytes=+1-2", "bytes=18446744073709551616-", "bytes 0-9"}) {
        CAPTURE(field);
        CHECK(requested(field, 100) == "whole");
    }
    CHECK(net::parse_range(std::nullopt, 100).kind == Kind::whole);
}

TEST_CASE("entity tags are found in lists", "[http][range]") {
    const struct {
        const char* field;
        const char* tag;
        bool weakly, is_named;
    } table[] = {
        {"\"a\"", "\"a\"", false, true},
        {"\"b\" , \"a\"", "\"a\"", false, true},
        {"*", "\"a\"", false, true},
        {"W/\"a\"", "\"a\"", true, true},
        {"W/\"a\"", "\"a\"", false, false},
        {"\"ab\"", "\"a\"", true, false},
        {"a", "\"a\"", true, false},
        {"\"b\" \"a\"", "\"a\"", true, false},
        {"", "\"a\"", true, false},
        {"\"a", "\"a", true, false},
        {"Wed, 21 Oct 2026 07:28:00 GMT", "\"a\"", false, false},
    };
    for (const auto& [field, tag, weakly, is_named] : table) {
        CAPTURE(field);
        CHECK(net::names_etag(field, tag, weakly) == is_named);
    }
}

TEST_CASE("a body is cut anywhere", "[http][range]") {
    const std::string a = "abc", b, c = "defgh", all = a + b + c;
    std::vector<net::BodyPart> parts;
    for (const std::string* text : {&a, &b, &c})
        parts.push_back({std::as_bytes(std::span(*text)), nullptr});
    for (std::uint64_t first = 0; first < all.size(); ++first) {
        for (std::uint64_t count = 1; first + count <= all.size(); ++count)
            REQUIRE(text_of(net::cut(parts, {first, count})) == all.substr(first, count));
    }
    CHECK(net::cut(parts, {3, 0}).empty());
}

TEST_CASE("queries are parted and decoded", "[http][range]") {
    using Pairs = std::vector<std::pair<std::string, std::string>>;
    CHECK(net::parse_query("") == Pairs{});
    CHECK(net::parse_query("slice=0:16&x=%20a&&y") == Pairs{{"slice", "0:16"}, {"x", " a"}, {"y", ""}});
    CHECK(net::parse_query("a=b=c") == Pairs{{"a", "b=c"}});
    CHECK(net::parse_query("a=%zz") == std::nullopt);
    CHECK(net::parse_query("a=1&b=2&a=1") == std::nullopt);
}

TEST_CASE("a Content-Range is written and read as RFC 9110 says", "[http][range]") {
    CHECK(net::content_range({90, 10}, 100) == "bytes 90-99/100");
    CHECK(net::content_range_of_none(100) == "bytes */100");
    const auto read = [](std::string_view field) -> std::string {
        const auto got = net::parse_content_range(field);
        if (!got) return "none";
        return std::to_string(got->part.first) + "+" + std::to_string(got->part.count) + "/" +
               (got->size ? std::to_string(*got->size) : "*");
    };
    for (const auto& [field, part] : {std::pair("bytes 0-99/1000", "0+100/1000"),
                                      {"Bytes 999-999/1000", "999+1/1000"},
                                      {"bytes 5-9/*", "5+5/*"},
                                      {"bytes 10-29/100", "10+20/100"},
                                      {"bytes */0", "0+0/0"},
                                      {"bytes */7", "0+0/7"}})
        CHECK(read(field) == part);
    for (const auto* wrong : {"", "bytes", "bytes 0-99", "bytes=0-99/1000", "bytes 0-1000/1000", "bytes 5-4/10",
                              "bytes -5/10", "bytes 5-/10", "bytes a-b/10", "bytes 0-9/", "bytes 0-9/-1", "bytes */*",
                              "items 0-9/10", "bytes 0-18446744073709551615/*", "bytes 0-9/10/11"})
        CHECK(read(wrong) == "none");
}

TEST_CASE("a path is written so that it is read as it was", "[http][range]") {
    CHECK(net::percent_encode_path("/tensors/a.b-c_d~1") == "/tensors/a.b-c_d~1");
    CHECK(net::percent_encode_path("a b?c#d%e") == "a%20b%3Fc%23d%25e");
    const std::string odd = "/x\"<>\xc3\xa4{}|^`";
    CHECK(net::percent_decode(net::percent_encode_path(odd)) == odd);
}

TEST_CASE("a digest is wanted by its name and a weight", "[http]") {
    CHECK(net::wants_digest(net::kWantDigest));
    CHECK(net::wants_digest("sha-256=1, xxh3-128=9"));
    CHECK(net::wants_digest(" xxh3-128=1 ,sha-512=3"));
    for (const auto* no : {"", "xxh3-128", "xxh3-128=", "xxh3-128=0", "xxh3-128=10", "xxh3-128=x", "sha-256=5",
                           "my-xxh3-128=5", "xxh3-128-x=5", "xxh3-1280=5", ",,,"}) {
        INFO(no);
        CHECK_FALSE(net::wants_digest(no));
    }
    CHECK_FALSE(net::wants_digest(std::nullopt));
}

TEST_CASE("a digest is read as it was written, and one that is none is told from one that is not there", "[http]") {
    const auto value = Digest::of({});
    const std::string field = net::digest_field(value);
    CHECK(field == "xxh3-128=:maoG0wFHmNhgAcMkRo1Jfw==:");
    for (const std::string& one : {field, "sha-256=:AAAA:, " + field, field + ",sha-512=:AAAA:"}) {
        const auto found = net::parse_digest_field(one);
        CHECK(found.is_there);
        CHECK(found.value == value);
    }
    CHECK_FALSE(net::parse_digest_field(std::nullopt).is_there);
    CHECK_FALSE(net::parse_digest_field("sha-256=:AAAA:").is_there);
    for (const auto* wrong :
         {"xxh3-128=", "xxh3-128=:", "xxh3-128=::", "xxh3-128=:AAAA:", "xxh3-128=maoG0wFHmNhgAcMkRo1Jfw==",
          "xxh3-128=:maoG0wFHmNhgAcMkRo1Jf*==:", "xxh3-128=:maoG0wFHmNhgAcMkRo1Jfw==AAAA:"}) {
        INFO(wrong);
        CHECK(net::parse_digest_field(wrong).is_there);
        CHECK_FALSE(net::parse_digest_field(wrong).value.has_value());
    }
}

TEST_CASE("a client may name its request by visible ASCII without quotes", "[net]") {
    for (const char* good : {"1", "a-B_c.9:/+=@~", "1f0a93c2-17"})
        CHECK(net::is_request_id(good));
    CHECK(net::is_request_id(std::string(128, 'x')));
    for (const std::string& bad : {std::string(), std::string(129, 'x'), std::string("a b"), std::string("a\tb"),
                                   std::string("a\"b"), std::string("a\\b"), std::string("a'b"),
                                   std::string("\xc3\xa4"), std::string("a\0b", 3), std::string("\x7f")})
        CHECK_FALSE(net::is_request_id(bad));
}

TEST_CASE("a traceparent is one of version 00 in the form of W3C Trace Context", "[net]") {
    const std::string good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    CHECK(net::is_traceparent(good));
    CHECK_FALSE(net::is_traceparent(""));
    CHECK_FALSE(net::is_traceparent(good + "-more"));
    CHECK_FALSE(net::is_traceparent(good.substr(1)));
    CHECK_FALSE(net::is_traceparent("00-00000000000000000000000000000000-00f067aa0ba902b7-01"));
    CHECK_FALSE(net::is_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"));
    for (std::size_t i = 0; i < good.size(); ++i) {  // capital letters are not allowed either
        std::string bad = good;
        bad[i] = 'X';
        CHECK_FALSE(net::is_traceparent(bad));
    }
}

TEST_CASE("a field that is set replaces all fields of its name", "[net]") {
    net::Headers headers;
    headers.add("X-Request-Id", "a");
    headers.add("Accept", "b");
    headers.add("x-request-id", "c");
    headers.set("X-Request-ID", "d");
    CHECK(headers.find("x-request-id") == "d");
    CHECK(headers.count("X-Request-Id") == 1);
    CHECK(headers.find("accept") == "b");
}
