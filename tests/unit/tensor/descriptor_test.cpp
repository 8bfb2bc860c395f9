// What a descriptor may say: as JSON, as lists of numbers, and as the text that a server of ours writes.

#include "tensor/descriptor.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <optional>
#include <shared_tensor/value.hpp>
#include <tuple>

#include "support/tensors.hpp"
#include "tensor/files/tensor_set.hpp"
#include "tensor/transports/shm_transport.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

struct Place {
    std::string path, expected, got;
};

/// What an import of the descriptor, beside a body of 64 bytes, is rejected with.
Place rejection(const std::string& descriptor) {
    const auto body = std::make_shared<std::array<std::byte, 64>>();
    TensorTransfer transfer({*body, body});
    try {
        transfer.import(Json::parse(descriptor));
    } catch (const InvalidValue& error) {
        return {error.path, error.expected, error.got};
    }
    return {"(taken)", "", ""};
}

std::string path_of(const std::string& descriptor) { return rejection(descriptor).path; }

}  // namespace

TEST_CASE("a hostile descriptor is rejected with the member that is wrong", "[tensor]") {
    struct Row {
        const char* path;
        const char* descriptor;
    };
    const Row rows[] = {
        // what it is
        {"", "7"},
        {"", "[]"},
        {"", "null"},
        {"", "{}"},
        {"", R"({"dtype":"float32","shape":[1]})"},
        {"", R"({"data":[1],"base64":"AA=="})"},
        {"", R"({"data":[1],"body":{"offset":0,"size":4},"url":"/x"})"},
        {"", R"({"data":[1],"order":"F"})"},
        {"", R"({"data":[1],"Shape":[1]})"},
        {"lease", R"({"data":[1],"lease":7})"},
        // dtype
        {"dtype", R"({"dtype":"float","data":[1]})"},
        {"dtype", R"({"dtype":7,"data":[1]})"},
        {"dtype", R"({"dtype":null,"data":[1]})"},
        {"dtype", R"({"dtype":"qint8","data":[1]})"},
        {"dtype", R"({"shape":[1],"base64":"AAAAAA=="})"},
        {"dtype", R"({"shape":[1],"body":{"offset":0,"size":4}})"},
        // shape
        {"shape", R"({"dtype":"float32","base64":"AAAAAA=="})"},
        {"shape", R"({"dtype":"float32","shape":4,"base64":"AAAAAA=="})"},
        {"shape[0]", R"({"dtype":"float32","shape":[-1],"base64":"AAAAAA=="})"},
        {"shape[1]", R"({"dtype":"float32","shape":[1,1.0],"base64":"AAAAAA=="})"},
        {"shape[0]", R"({"dtype":"float32","shape":["1"],"base64":"AAAAAA=="})"},
        {"shape[0]", R"({"dtype":"float32","shape":[true],"base64":"AAAAAA=="})"},
        {"shape[0]", R"({"dtype":"float32","shape":[9223372036854775808],"base64":"AAAAAA=="})"},
        {"shape[0]", R"({"dtype":"float32","shape":[1e300],"base64":"AAAAAA=="})"},
        {"shape", R"({"dtype":"float32","shape":[9223372036854775807],"base64":"AAAAAA=="})"},
        {"shape", R"({"dtype":"uint8","shape":[4294967296,4294967296],"body":{"offset":0,"size":0}})"},
        {"shape", R"({"dtype":"uint8","shape":[0,4294967296,4294967296],"body":{"offset":0,"size":0}})"},
        {"shape", R"({"dtype":"uint8","shape":[3037000500,3037000500,2],"body":{"offset":0,"size":8}})"},
        {"shape", R"({"dtype":"complex128","shape":[1152921504606846976],"body":{"offset":0,"size":0}})"},
        // strides
        {"strides", R"({"dtype":"uint8","shape":[2,2],"strides":[2],"body":{"offset":0,"size":4}})"},
        {"strides", R"({"dtype":"uint8","shape":[2],"strides":{},"body":{"offset":0,"size":4}})"},
        {"strides[0]", R"({"dtype":"uint8","shape":[2],"strides":[-1],"body":{"offset":1,"size":2}})"},
        {"strides[1]", R"({"dtype":"uint8","shape":[2,2],"strides":[1,0.5],"body":{"offset":1,"size":2}})"},
        {"strides", R"({"dtype":"uint8","shape":[3],"strides":[9223372036854775807],"body":{"offset":0,"size":4}})"},
        {"strides",
         R"({"dtype":"uint8","shape":[2,2],"strides":[6917529027641081856,6917529027641081856],"body":{"offset":0,"size":4}})"},
        {"strides", R"({"dtype":"float64","shape":[2],"strides":[2305843009213693952],"body":{"offset":0,"size":16}})"},
        {"strides",
         R"({"dtype":"float64","shape":[0,3],"strides":[1,9223372036854775807],"body":{"offset":0,"size":0}})"},
        {"strides", R"({"dtype":"uint8","shape":[1099511627776],"strides":[0],"body":{"offset":0,"size":1}})"},
        {"strides", R"({"dtype":"uint8","shape":[65536,65536],"strides":[1,0],"body":{"offset":0,"size":64}})"},
        {"strides", R"({"dtype":"uint8","shape":[2,2],"strides":[1,2],"data":[[1,2],[3,4]]})"},
        {"strides", R"({"dtype":"uint8","shape":[2,2],"strides":[1,2],"base64":"AQIDBA=="})"},
        {"body.size", R"({"dtype":"uint8","shape":[2],"strides":[64],"body":{"offset":0,"size":64}})"},
        {"body.size", R"({"dtype":"uint8","shape":[2],"strides":[4],"body":{"offset":0,"size":4}})"},
        // device
        {"device", R"({"dtype":"uint8","device":"cuda:0; rm","data":[1]})"},
        {"device", R"({"dtype":"uint8","device":"cuda:","data":[1]})"},
        {"device", R"({"dtype":"uint8","device":"mps","data":[1]})"},
        {"device", R"({"dtype":"uint8","device":0,"data":[1]})"},
        {"device", R"({"dtype":"uint8","device":"cuda:GPU-5a1f","data":[1]})"},
        // body
        {"body", R"({"dtype":"uint8","shape":[1],"body":7})"},
        {"body", R"({"dtype":"uint8","shape":[1],"body":[0,1]})"},
        {"body", R"({"dtype":"uint8","shape":[1],"body":{"offset":0}})"},
        {"body", R"({"dtype":"uint8","shape":[1],"body":{"offset":0,"size":1,"more":1}})"},
        {"body.size", R"({"dtype":"uint8","shape":[1],"body":{"offset":0,"length":1}})"},
        {"body.offset", R"({"dtype":"uint8","shape":[1],"body":{"offset":-1,"size":1}})"},
        {"body.offset", R"({"dtype":"uint8","shape":[1],"body":{"offset":0.0,"size":1}})"},
        {"body.size", R"({"dtype":"uint8","shape":[1],"body":{"offset":0,"size":"1"}})"},
        {"body.offset", R"({"dtype":"uint8","shape":[1],"body":{"offset":65,"size":1}})"},
        {"body.size", R"({"dtype":"uint8","shape":[1],"body":{"offset":64,"size":1}})"},
        {"body.size", R"({"dtype":"uint8","shape":[64],"body":{"offset":1,"size":64}})"},
        {"body.offset", R"({"dtype":"uint8","shape":[1],"body":{"offset":18446744073709551615,"size":1}})"},
        {"body.size", R"({"dtype":"uint8","shape":[2],"body":{"offset":1,"size":18446744073709551615}})"},
        {"body.size", R"({"dtype":"float32","shape":[2],"body":{"offset":0,"size":7}})"},
        {"body.size", R"({"dtype":"float32","shape":[2],"body":{"offset":0,"size":12}})"},
        {"body.size", R"({"dtype":"float32","shape":[],"body":{"offset":0,"size":0}})"},
        {"body.size", R"({"dtype":"float32","shape":[0],"body":{"offset":0,"size":4}})"},
        // base64
        {"base64", R"({"dtype":"uint8","shape":[1],"base64":7})"},
        {"base64", R"({"dtype":"uint8","shape":[1],"base64":"AQ"})"},
        {"base64", R"({"dtype":"uint8","shape":[1],"base64":"A*=="})"},
        {"base64", R"({"dtype":"uint8","shape":[1],"base64":"AR=="})"},
        {"base64", R"({"dtype":"uint8","shape":[2],"base64":"AQ=="})"},
        {"base64", R"({"dtype":"uint8","shape":[1099511627776],"base64":"AQ=="})"},
        {"base64", R"({"dtype":"bool","shape":[3],"base64":"AAEC"})"},
        // lists
        {"data[1]", R"({"data":[[1,2],[3]]})"},
        {"data[1]", R"({"data":[[1,2],3]})"},
        {"data[1]", R"({"data":[1,[2]]})"},
        {"data[0]", R"({"dtype":"float32","data":[null]})"},
        {"data[0]", R"({"data":[{}]})"},
        {"data", R"({"data":null})"},
        {"data", R"({"data":"abc"})"},
        {"data[0]", R"({"shape":[1,2],"data":[[1]]})"},
        {"data", R"({"shape":[2],"data":[1]})"},
        {"data", R"({"shape":[2],"data":[]})"},
        {"data", R"({"shape":[1000000,1000000],"data":[]})"},
        {"data[1]", R"({"shape":[2,3],"data":[[1,2,3],[]]})"},
        {"data", R"({"shape":[],"data":[1]})"},
        {"data", R"({"shape":[0],"data":[1]})"},
        {"data", R"({"shape":[0,2],"data":[[1,2]]})"},
        {"data[0]", R"({"data":[true,1]})"},
        {"data[1]", R"({"dtype":"uint8","data":[255,256]})"},
        {"data[0]", R"({"dtype":"uint8","data":[-1]})"},
        {"data[0]", R"({"dtype":"int8","data":[-129]})"},
        {"data[0]", R"({"dtype":"int32","data":[1.5]})"},
        {"data[0]", R"({"dtype":"int64","data":[9223372036854775808]})"},
        {"data[0]", R"({"data":[9223372036854775808]})"},
        {"data[0]", R"({"dtype":"int64","data":[9223372036854775808.0]})"},
        {"data[0]", R"({"dtype":"uint64","data":[18446744073709551616.0]})"},
        {"data[0]", R"({"dtype":"uint64","data":[-1.0]})"},
        {"data[0]", R"({"dtype":"int64","data":["NaN"]})"},
        {"data[0]", R"({"dtype":"float32","data":["nan"]})"},
        {"data[0]", R"({"dtype":"float32","data":[1e39]})"},
        {"data[0]", R"({"dtype":"float16","data":[65520]})"},
        {"data[0]", R"({"dtype":"float8_e4m3fn","data":[480]})"},
        {"data[0]", R"({"dtype":"float8_e4m3fn","data":["Infinity"]})"},
        {"data[0]", R"({"dtype":"float8_e8m0fnu","data":[-1]})"},
        {"data[0]", R"({"dtype":"bool","data":[1]})"},
        {"data[0]", R"({"dtype":"complex64","shape":[1],"data":[1]})"},
        {"data[0]", R"({"dtype":"complex64","shape":[1],"data":[[1,2,3]]})"},
        {"data[0]", R"({"dtype":"complex64","shape":[1],"data":[[1,null]]})"},
        {"data", R"({"dtype":"float4_e2m1fn_x2","data":[1]})"},
        // transports that are known but not built in
        {"shm", R"({"dtype":"uint8","shape":[1],"shm":{"segment":"/etc/passwd","offset":0,"size":1}})"},
        {"cuda_ipc", R"({"dtype":"uint8","shape":[1],"cuda_ipc":{}})"},
        {"url", R"({"dtype":"uint8","shape":[1],"url":"http://example.org/x"})"},
    };
    for (const Row& row : rows) {
        INFO(row.descriptor);
        CHECK(path_of(row.descriptor) == row.path);
    }
}

TEST_CASE("what was expected and what came stand in the rejection, readable and cut", "[tensor]") {
    const Place size = rejection(R"({"dtype":"float32","shape":[2,3],"body":{"offset":0,"size":20}})");
    CHECK(size.expected == "24 (shape x item size)");
    CHECK(size.got == "20");
    const Place transport = rejection(R"({"dtype":"uint8","shape":[1],"shm":{}})");
    CHECK(transport.expected == "one of the transports that can be used here (data, base64, body)");
    CHECK(transport.got == "shm, but it is not built in");
    const Place both = rejection(R"({"data":[1],"base64":"AA=="})");
    CHECK(both.expected == "exactly one of data, base64, body, shm, cuda_ipc, url");
    CHECK(both.got == "data, base64");
    CHECK(rejection(Json{{"data", {1}}, {std::string(1000, 'x'), 1}}.dump()).got.size() < 100);
}

TEST_CASE("descriptors that are unusual but right are taken, up to 64 dimensions", "[tensor]") {
    for (const char* descriptor : {
             R"({"dtype":"uint8","shape":[],"body":{"offset":63,"size":1}})",
             R"({"dtype":"uint8","shape":[0],"body":{"offset":64,"size":0}})",
             R"({"dtype":"float32","shape":[0,7],"strides":[9,1],"body":{"offset":0,"size":0}})",
             R"({"dtype":"uint8","shape":[2,3],"strides":[3,1],"body":{"offset":0,"size":6}})",
             R"({"dtype":"uint8","shape":[2],"strides":[63],"body":{"offset":0,"size":64}})",
             R"({"dtype":"uint8","shape":[1000000],"strides":[0],"body":{"offset":5,"size":1}})",
             R"({"dtype":"uint8","shape":[2,2],"strides":[2,1],"base64":"AQIDBA=="})",
             R"({"dtype":"uint8","shape":[1,2],"strides":[55,1],"data":[[1,2]]})",
             R"({"dtype":"uint8","shape":[0],"base64":""})",
             R"({"data":[1],"device":"cpu","lease":"l-1","url":"/tensors/l-1"})",
         }) {
        INFO(descriptor);
        CHECK(path_of(descriptor) == "(taken)");
    }
    const auto with_rank = [](std::size_t rank) {
        return Json{{"dtype", "uint8"}, {"shape", std::vector<int>(rank, 1)}, {"base64", "AQ=="}}.dump();
    };
    const auto nested = [](std::size_t depth) {
        return "{\"data\":" + std::string(depth, '[') + "1" + std::string(depth, ']') + "}";
    };
    CHECK(path_of(with_rank(64)) == "(taken)");
    CHECK(path_of(with_rank(65)) == "shape");
    CHECK(path_of(nested(64)) == "(taken)");
    CHECK(path_of(nested(65)) == "data");
}

TEST_CASE("what repeated elements may pretend to be is an option", "[tensor]") {
    const Json json = Json::parse(R"({"dtype":"uint8","shape":[100],"strides":[0],"body":{"offset":0,"size":1}})");
    CHECK_NOTHROW(parse_descriptor(json, {100}));
    CHECK_THROWS_AS(parse_descriptor(json, {99}), InvalidValue);
}

TEST_CASE("lists without a shape or a dtype have those that they show", "[tensor]") {
    struct Row {
        const char* members;
        const char* dtype;
        Shape shape;
    };
    const Row rows[] = {
        {R"("data":[[1,2,3],[4,5,-6]])", "int64", {2, 3}},
        {R"("data":7)", "int64", {}},
        {R"("data":[true,false])", "bool", {2}},
        {R"("data":[1,2.5])", "float32", {2}},
        {R"("data":[1,"NaN"])", "float32", {2}},
        {R"("data":[])", "float32", {0}},
        {R"("data":[[],[]])", "float32", {2, 0}},
        {R"("shape":[2,0,3],"data":[[],[]])", "float32", {2, 0, 3}},
        {R"("dtype":"complex64","data":[[1,2],[3,4],[5,6]])", "complex64", {3}},
        {R"("dtype":"complex64","data":[1,2])", "complex64", {}},
    };
    for (const Row& row : rows) {
        INFO(row.members);
        const auto tensor = TensorTransfer().import(Json::parse(std::string("{") + row.members + "}"));
        CHECK(name_of(tensor->tensor().dtype()) == row.dtype);
        CHECK(shape_of(tensor) == row.shape);
    }
}

TEST_CASE("lists print in the shortest form that reads back the same", "[tensor]") {
    struct Row {
        const char* members;
        const char* printed;
    };
    const Row rows[] = {
        {R"("dtype":"float32","data":[0.1,16777216,3.4028234663852886e38,1e-45])",
         "[0.1,16777216.0,3.4028235e+38,1e-45]"},
        {R"("dtype":"float16","data":[0.1,0.33325,65504,6e-8])", "[0.1,0.3333,65500.0,6e-08]"},
        {R"("dtype":"bfloat16","data":[0.1,1.0078125,3.3895313892515355e38])", "[0.1,1.01,3.39e+38]"},
        {R"("dtype":"float8_e4m3fn","data":[0.1,448])", "[0.1,450.0]"},
        {R"("dtype":"float64","data":[0.1,1e300])", "[0.1,1e+300]"},
        // what JSON has no number for
        {R"("dtype":"float32","data":["NaN","Infinity","-Infinity"])", R"(["NaN","Infinity","-Infinity"])"},
        {R"("dtype":"complex128","data":[["NaN",1],[0,"-Infinity"]])", R"([["NaN",1.0],[0.0,"-Infinity"]])"},
        // integers of 64 bits stay exact
        {R"("dtype":"int64","data":[9007199254740993,-9223372036854775808])",
         "[9007199254740993,-9223372036854775808]"},
        {R"("dtype":"uint64","data":[18446744073709551615])", "[18446744073709551615]"},
        {R"("dtype":"uint64","data":[1e19,9223372036854775808.0])", "[10000000000000000000,9223372036854775808]"},
        {R"("dtype":"int32","data":[3.0])", "[3]"},
        {R"("shape":[1099511627776,0],"data":[])", "[]"},
    };
    for (const Row& row : rows) {
        INFO(row.members);
        TensorTransfer transfer({}, only(TransportKind::data));
        const auto tensor = transfer.import(Json::parse(std::string("{") + row.members + "}"));
        CHECK(transfer.describe(tensor)["data"].dump() == row.printed);
    }
}

namespace {

constexpr DescriptorLimits kLimits{1 << 20};

const std::vector<std::string> kTexts{
    R"({"device":"cpu","dtype":"float32","lease":"l-0123456789abcdef0123456789abcdef","shape":[1024],"shm":{"segment":"s-1","offset":0,"size":4096}})",
    R"({"device":"cpu","dtype":"int64","lease":"l-1","shape":[],"shm":{"segment":"s-1","offset":64,"size":8}})",
    R"({"device":"cpu","dtype":"bool","lease":"l-1","shape":[2,3],"strides":[1,2],"shm":{"segment":"s_1.a","offset":0,"size":6}})",
    R"({"device":"cpu","dtype":"uint8","lease":"l-1","shape":[2,3],"strides":[3,1],"shm":{"segment":"s-1","offset":0,"size":6}})",
    R"({"device":"cpu","dtype":"uint8","lease":"l-1","shape":[1048576,1],"strides":[0,1],"shm":{"segment":"s-1","offset":0,"size":1}})",
};

/// All that a descriptor of shared memory says.
auto told(const Descriptor& read, const std::string& segment, const Region& region) {
    return std::tuple(read.transport, read.dtype, read.device, read.lease, read.shape, read.strides, read.extent.bytes,
                      read.extent.reach, read.extent.elements, segment, region.offset, region.size);
}
using Told = decltype(told({}, {}, {}));

std::optional<Told> by_text(const std::string& text) {
    const auto read = read_shm_descriptor(text, kLimits);
    if (!read) return std::nullopt;
    return told(*read, std::string(read->place.segment), read->place.region);
}

/// The judge of what the text says.
std::optional<Told> by_json(const std::string& text) {
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) return std::nullopt;
    try {
        const Descriptor read = parse_descriptor(json, kLimits);
        if (read.transport != TransportKind::shm) return std::nullopt;
        return told(read, std::string(region_text(read, "segment")),
                    {region_natural(read, "offset"), region_natural(read, "size")});
    } catch (const InvalidValue&) {
        return std::nullopt;
    }
}

}  // namespace

TEST_CASE("the text of a descriptor of shared memory is read as its JSON is, or left to it where it is changed",
          "[tensor]") {
    std::size_t taken = 0;
    const auto check = [&](const std::string& text) {
        const auto read = by_text(text);
        if (!read) return;
        INFO(text);
        REQUIRE((read == by_json(text)));
        ++taken;
    };
    for (const std::string& text : kTexts) {
        REQUIRE(by_text(text));
        check(text);
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
