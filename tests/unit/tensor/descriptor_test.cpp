#include "tensor/descriptor.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <shared_tensor/value.hpp>

#include "tensor/transports/tensor_transfer.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;

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

TEST_CASE("what was expected and what came stand in the rejection", "[tensor]") {
    const Place size = rejection(R"({"dtype":"float32","shape":[2,3],"body":{"offset":0,"size":20}})");
    CHECK(size.expected == "24 (shape x item size)");
    CHECK(size.got == "20");
    const Place transport = rejection(R"({"dtype":"uint8","shape":[1],"shm":{}})");
    CHECK(transport.expected == "one of the transports that can be used here (data, base64, body)");
    CHECK(transport.got == "shm, but it is not built in");
    const Place both = rejection(R"({"data":[1],"base64":"AA=="})");
    CHECK(both.expected == "exactly one of data, base64, body, shm, cuda_ipc, url");
    CHECK(both.got == "data, base64");
}

TEST_CASE("descriptors that are unusual but right are taken", "[tensor]") {
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
}

TEST_CASE("a rank of 64 is taken, one of 65 is not", "[tensor]") {
    const auto with_rank = [](std::size_t rank) {
        return Json{{"dtype", "uint8"}, {"shape", std::vector<int>(rank, 1)}, {"base64", "AQ=="}}.dump();
    };
    CHECK(path_of(with_rank(64)) == "(taken)");
    CHECK(path_of(with_rank(65)) == "shape");
}

TEST_CASE("what repeated elements may pretend to be is an option", "[tensor]") {
    const Json json = Json::parse(R"({"dtype":"uint8","shape":[100],"strides":[0],"body":{"offset":0,"size":1}})");
    CHECK_NOTHROW(parse_descriptor(json, {100}));
    CHECK_THROWS_AS(parse_descriptor(json, {99}), InvalidValue);
}

TEST_CASE("a member's name in a message is cut and made readable", "[tensor]") {
    const Place place = rejection(Json{{"data", {1}}, {std::string(1000, 'x'), 1}}.dump());
    CHECK(place.got.size() < 100);
}
