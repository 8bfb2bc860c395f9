#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

Json tensor(const char* dtype, const Json& shape, const Json& transport) {
    Json descriptor{{"dtype", dtype}, {"shape", shape}, {"device", "cpu"}};
    descriptor.update(transport);
    return {{"$tensor", descriptor}};
}

std::string bytes_of(std::initializer_list<float> values) {
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), std::data(values), bytes.size());
    return bytes;
}

Json scaled(const Json& x, const HeaderList& headers) {
    const Json response = respond(shared_daemon(), "scale", {{"x", x}, {"factor", 2.0}}, headers);
    INFO(response.dump());
    return response;
}

}  // namespace

TEST_CASE("a tensor goes as data and comes back as data", "[server]") {
    const Json x = tensor("float32", {2, 2}, {{"data", {{1, 2}, {3, 0.5}}}});
    const HttpReply reply = post(shared_daemon(), call_object("scale", {x}).dump());
    const Json result = Json::parse(reply.body)["result"]["$tensor"];
    CHECK(result["data"] == Json::parse("[[2.0,4.0],[6.0,1.0]]"));
    CHECK(result["shape"] == Json{2, 2});
    CHECK(result["dtype"] == "float32");
    CHECK(reply.header("Shared-Tensor-Transport").starts_with("data"));
}

TEST_CASE("a tensor goes as base64 and comes back as base64", "[server]") {
    const Json x = tensor("float32", {2}, {{"base64", "AACAPwAAAEA="}});  // 1, 2
    const Json response = scaled(x, {{"Shared-Tensor-Accept", "base64"}});
    CHECK(response["result"]["$tensor"]["base64"] == "AAAAQAAAgEA=");  // 2, 4
}

TEST_CASE("a tensor goes in a frame and comes back in one", "[server]") {
    const Json x = tensor("float32", {3}, {{"body", {{"offset", 0}, {"size", 12}}}});
    const std::string body = framed(call_object("scale", {x, 3}).dump(), bytes_of({1, 2, 3}));
    const HttpReply reply = post(shared_daemon(), body, {{"Content-Type", kFrame}, {"Shared-Tensor-Accept", "body"}});
    REQUIRE(reply.status == 200);
    REQUIRE(reply.header("Content-Type") == kFrame);
    std::uint64_t size = 0;
    std::memcpy(&size, reply.body.data(), 8);
    REQUIRE((8 + size) % 64 == 0);
    const Json place = Json::parse(reply.body.substr(8, size))["result"]["$tensor"]["body"];
    CHECK(place["size"] == 12);
    CHECK(reply.body.substr(8 + size + place["offset"].get<std::size_t>(), 12) == bytes_of({3, 6, 9}));
}

TEST_CASE("the content type of a frame is read without case and parameters", "[server]") {
    const Json x = tensor("float32", {1}, {{"body", {{"offset", 0}, {"size", 4}}}});
    const std::string body = framed(call_object("scale", {x}).dump(), bytes_of({1}));
    const HttpReply reply = post(shared_daemon(), body, {{"Content-Type", "Application/VND.shared-tensor; v=1"}});
    CHECK(Json::parse(reply.body)["result"]["$tensor"]["data"] == Json{2.0});
}

TEST_CASE("descriptors that lie are rejected before anything runs", "[server]") {
    const char* zeros = "AAAAAAAAAAA=";  // 8 bytes
    for (const Json& x : {
             tensor("float32", {3}, {{"base64", zeros}}),
             tensor("float32", {-1}, {{"base64", zeros}}),
             tensor("float33", {2}, {{"base64", zeros}}),
             tensor("float32", {1LL << 62, 1LL << 62}, {{"base64", zeros}}),
             tensor("float32", {2}, {{"base64", "no base64!"}}),
             tensor("float32", {2}, {{"body", {{"offset", 0}, {"size", 8}}}}),
             tensor("float32", {2}, {{"base64", zeros}, {"strides", {2}}}),
             tensor("float32", {2}, Json::object()),
             tensor("float32", {2}, {{"data", {1}}}),
             Json{{"$tensor", 3}},
             Json(3),
         }) {
        INFO(x.dump());
        const Json response = scaled(x, {});
        CHECK(code_of(response) == -32602);
        CHECK(response["error"]["data"]["parameter"].get<std::string>().starts_with("x"));
    }
}

TEST_CASE("offsets of a frame are checked without overflow", "[server]") {
    for (const Json& place :
         {Json{{"offset", 8}, {"size", 8}}, Json{{"offset", 18446744073709551608ULL}, {"size", 8}},
          Json{{"offset", -8}, {"size", 8}}, Json{{"offset", 0}, {"size", 9223372036854775807LL}}}) {
        INFO(place.dump());
        const Json x = tensor("float32", {2}, {{"body", place}});
        const std::string body = framed(call_object("scale", {x}).dump(), bytes_of({1, 2}));
        CHECK(code_of(Json::parse(post(shared_daemon(), body, {{"Content-Type", kFrame}}).body)) == -32602);
    }
}

TEST_CASE("a body that is no frame is a parse error", "[server]") {
    const std::string longer_than_it_is("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F{}", 10);
    for (const std::string& body : {std::string(), std::string("1234567"), longer_than_it_is}) {
        const HttpReply reply = post(shared_daemon(), body, {{"Content-Type", kFrame}});
        CHECK(reply.status == 200);
        CHECK(code_of(Json::parse(reply.body)) == -32700);
    }
}

TEST_CASE("a required way that is not there is an error with the reasons", "[server]") {
    const Json x = tensor("float32", {1}, {{"data", {1}}});
    const Json response = scaled(x, {{"Shared-Tensor-Require", "cuda_ipc"}});
    CHECK(code_of(response) == -32006);
    CHECK(response["error"]["data"]["reasons"].contains("cuda_ipc"));
}
