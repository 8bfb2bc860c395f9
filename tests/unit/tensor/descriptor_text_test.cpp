
#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <shared_tensor/value.hpp>
#include <string>
#include <vector>

#include "tensor/descriptor.hpp"
#include "tensor/transports/shm_transport.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;

namespace {

constexpr DescriptorLimits kLimits{1 << 20};

const std::vector<std::string> kTexts{
    R"({"device":"cpu","dtype":"float32","lease":"l-0123456789abcdef0123456789abcdef","shape":[1024],"shm":{"segment":"s-1","offset":0,"size":4096}})",
    R"({"device":"cpu","dtype":"int64","lease":"l-1","shape":[],"shm":{"segment":"s-1","offset":64,"size":8}})",
    R"({"device":"cpu","dtype":"bool","lease":"l-1","shape":[2,3],"strides":[1,2],"shm":{"segment":"s_1.a","offset":0,"size":6}})",
    R"({"device":"cpu","dtype":"uint8","lease":"l-1","shape":[2,3],"strides":[3,1],"shm":{"segment":"s-1","offset":0,"size":6}})",
    R"({"device":"cpu","dtype":"uint8","lease":"l-1","shape":[1048576,1],"strides":[0,1],"shm":{"segment":"s-1","offset":0,"size":1}})",
};

struct Read {
    Descriptor descriptor;
    std::string segment;
    Region region;
};

std::optional<Read> by_text(const std::string& text) {
    const auto descriptor = read_shm_descriptor(text, kLimits);
    if (!descriptor) return std::nullopt;
    return Read{*descriptor, descriptor->place.segment, descriptor->place.region};
}

/// The judge of what the text says.
std::optional<Read> by_json(const std::string& text) {
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) return std::nullopt;
    try {
        const Descriptor descriptor = parse_descriptor(json, kLimits);
        if (descriptor.transport != TransportKind::shm) return std::nullopt;
        const Region region{region_natural(descriptor, "offset"), region_natural(descriptor, "size")};
        return Read{descriptor, region_text(descriptor, "segment"), region};
    } catch (const InvalidValue&) {
        return std::nullopt;
    }
}

void check_equal(const Read& a, const Read& b) {
    CHECK(a.segment == b.segment);
    CHECK(a.region.offset == b.region.offset);
    CHECK(a.region.size == b.region.size);
    CHECK(a.descriptor.transport == b.descriptor.transport);
    CHECK(a.descriptor.dtype == b.descriptor.dtype);
    CHECK(a.descriptor.device == b.descriptor.device);
    CHECK(a.descriptor.lease == b.descriptor.lease);
    CHECK(a.descriptor.shape == b.descriptor.shape);
    CHECK(a.descriptor.strides == b.descriptor.strides);
    CHECK(a.descriptor.extent.bytes == b.descriptor.extent.bytes);
    CHECK(a.descriptor.extent.reach == b.descriptor.extent.reach);
    CHECK(a.descriptor.extent.elements == b.descriptor.extent.elements);
}

}  // namespace

TEST_CASE("a descriptor of shared memory is read from its text as from its JSON", "[tensor]") {
    for (const std::string& text : kTexts) {
        INFO(text);
        const auto read = by_text(text);
        REQUIRE(read);
        check_equal(*read, by_json(text).value());
    }
}

TEST_CASE("a text that is changed anywhere is read as its JSON is, or left to it", "[tensor]") {
    std::size_t taken = 0;
    const auto check = [&](const std::string& text) {
        const auto read = by_text(text);
        if (!read) return;
        INFO(text);
        const auto judged = by_json(text);
        REQUIRE(judged);
        check_equal(*read, *judged);
        ++taken;
    };
    for (const std::string& text : kTexts) {
        for (std::size_t at = 0; at < text.size(); ++at) {
            for (const char byte : std::string("\"\\,:[]{} 0189-+.eE\x01\x80\xff"
                                               "az") +
                                       '\0')
                check(std::string(text).replace(at, 1, 1, byte));
            check(std::string(text).erase(at, 1));
            check(std::string(text).insert(at, 1, '0'));
            check(std::string(text).insert(at, 1, text[at]));
            check(text.substr(0, at));
        }
    }
    CHECK(taken > 100);  // other segments, offsets, sizes
}

TEST_CASE("what another than our own server may write is left to the reader of JSON", "[tensor]") {
    for (
        const char* text : {
            R"({"dtype":"uint8","lease":"l-1","shape":[1],"shm":{"segment":"s","offset":0,"size":1}})",
            R"({"device":"cpu","dtype":"uint8","lease":"l-1","shape":[1],"shm":{"offset":0,"segment":"s","size":1}})",
            R"({"device":"cpu", "dtype":"uint8","lease":"l-1","shape":[1],"shm":{"segment":"s","offset":0,"size":1}})",
            R"({"device":"cpu","dtype":"uint8","lease":"l-\u0031","shape":[1],"shm":{"segment":"s","offset":0,"size":1}})",
        }) {
        INFO(text);
        CHECK(by_json(text));
        CHECK_FALSE(by_text(text));
    }
}

TEST_CASE("what parse_descriptor rejects is left to it, which says why", "[tensor]") {
    const std::string start = R"({"device":"cpu","dtype":"uint8","lease":"l-1","shape":)";
    const std::string end = R"(,"shm":{"segment":"s","offset":0,"size":1}})";
    for (const char* middle : {
             "[9223372036854775808]",                  // a count beyond 63 bits
             "[4294967296,4294967296]",                // bytes beyond 63 bits
             "[2,2],\"strides\":[1]",                  // too few
             "[2],\"strides\":[9223372036854775807]",  // reaches too far
             "[2097152,1],\"strides\":[0,1]",          // more repeated elements than the limit
             "[0]",                                    // names no memory
             "[-1]",
             "[01]",
             "[1,]",
             "[,1]",
             "[1",
             "1",
             "[1.0]",
         }) {
        INFO(middle);
        CHECK_FALSE(by_text(start + middle + end));
    }
    std::string deep = "[1";
    for (std::size_t i = 1; i < kMaxRank; ++i)
        deep += ",1";
    CHECK(by_text(start + deep + "]" + end));
    CHECK_FALSE(by_text(start + deep + ",1]" + end));
}
