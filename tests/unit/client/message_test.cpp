
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "client/call/incoming.hpp"
#include "client/call/outgoing.hpp"
#include "protocol/codec/frame.hpp"
#include "support/tensors.hpp"

// Requests and answers with tensors, as bytes: no socket.

using namespace shared_tensor;
using namespace shared_tensor::test;
using client::Outgoing;

namespace {

const auto kPorts = client::tensor_ports("", "");

template <class... Args>
Outgoing call(const Args&... args) {
    Outgoing request(Outgoing::Form::single, 1, *kPorts);
    request.call("f", detail::ArgumentsOf<Args...>(args...));
    request.finish();
    return request;
}

std::string bytes_of(const Outgoing& request) {
    std::string bytes;
    for (const auto& part : request.body())
        bytes.append(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
    return bytes;
}

nlohmann::json json_of(const std::string& bytes) {
    return nlohmann::json::parse(codec::split_frame(std::as_bytes(std::span(bytes))).value().json);
}

bool has_part_at(const Outgoing& request, const void* address) {
    for (const auto& part : request.body()) {
        if (part.bytes.data() == address) return true;
    }
    return false;
}

net::ClientResponse framed(const std::string& json, std::string_view tensors, BufferPool& pool) {
    const std::string bytes = codec::frame_head(json) + std::string(tensors);
    net::ClientResponse response;
    response.status = 200;
    response.headers.add("Content-Type", std::string(codec::kFrameContentType));
    response.body = pool.take(bytes.size());
    response.body->resize(bytes.size());
    std::memcpy(response.body->data(), bytes.data(), bytes.size());
    return response;
}

constexpr const char* kTwoFloats = R"({"jsonrpc":"2.0","id":1,"result":{"$tensor":
    {"dtype":"float32","shape":[2],"device":"cpu","body":{"offset":0,"size":8}}}})";

}  // namespace

TEST_CASE("A call without tensors is plain JSON", "[client]") {
    const auto request = call(1, "x");
    CHECK(request.content_type() == "application/json");
    CHECK(nlohmann::json::parse(bytes_of(request)).at("params") == nlohmann::json{1, "x"});
}

TEST_CASE("A tensor travels behind the JSON, from its own memory", "[client]") {
    const TensorRef x = arange<float>({6});
    const auto request = call(named("x", x), named("factor", 2.0));
    CHECK(request.content_type() == codec::kFrameContentType);
    CHECK(has_part_at(request, x.data()));
    const auto descriptor = json_of(bytes_of(request)).at("params").at("x").at("$tensor");
    CHECK(descriptor.at("dtype") == "float32");
    CHECK(descriptor.at("body") == nlohmann::json{{"offset", 0}, {"size", 24}});
}

TEST_CASE("Each of several tensors is where its descriptor says", "[client]") {
    const TensorRef a = arange<float>({3}), b = arange<std::int64_t>({5});
    const std::string bytes = bytes_of(call(std::map<std::string, std::vector<TensorRef>>{{"list", {a, b}}}));
    const auto list = json_of(bytes).at("params").at(0).at("list");
    const auto frame = codec::split_frame(std::as_bytes(std::span(bytes))).value();
    const auto offset = list.at(1).at("$tensor").at("body").at("offset").get<std::size_t>();
    CHECK(offset % 64 == 0);
    CHECK(std::memcmp(frame.tensors.data() + offset, b.data(), 40) == 0);
}

TEST_CASE("A request keeps its tensors until it is sent for the last time", "[client]") {
    TensorRef x = arange<float>({6});
    const auto request = call(x);
    const std::string before = bytes_of(request);
    x = {};
    CHECK(bytes_of(request) == before);
}

TEST_CASE("A batch carries the tensors of all its items", "[client]") {
    const TensorRef a = arange<float>({3}), b = arange<float>({3});
    Outgoing request(Outgoing::Form::batch, 1, *kPorts);
    request.call("f", detail::ArgumentsOf(a));
    request.call("g", detail::ArgumentsOf(b));
    request.finish();
    CHECK(has_part_at(request, a.data()));
    CHECK(has_part_at(request, b.data()));
    CHECK(json_of(bytes_of(request)).size() == 2);
}

TEST_CASE("A tensor of an answer views the received bytes and keeps them", "[client]") {
    const float values[] = {1.5F, -2.0F};
    const void* begin = nullptr;
    detail::ResultOf<TensorRef> slot;
    std::weak_ptr<PooledBuffer> body;
    {
        BufferPool pool;
        auto response = framed(kTwoFloats, {reinterpret_cast<const char*>(values), 8}, pool);
        body = response.body;
        begin = codec::split_frame(response.body->bytes()).value().tensors.data();
        client::Incoming::read(std::move(response), call(), *kPorts, "url").result(slot);
    }
    const TensorRef result = slot.take();
    CHECK(result.data() == begin);
    CHECK_FALSE(body.expired());
    CHECK(elements_of<float>(result) == std::vector{1.5F, -2.0F});
}

TEST_CASE("A tensor that reaches beyond the answer is rejected before it is read", "[client]") {
    BufferPool pool;
    detail::ResultOf<TensorRef> slot;
    const auto incoming = client::Incoming::read(framed(kTwoFloats, "1234", pool), call(), *kPorts, "url");
    CHECK_THROWS_AS(incoming.result(slot), ResultMismatch);
}

TEST_CASE("A tensor where none was asked for is a result of another type", "[client]") {
    BufferPool pool;
    detail::ResultOf<double> slot;
    const auto incoming = client::Incoming::read(framed(kTwoFloats, "12345678", pool), call(), *kPorts, "url");
    CHECK_THROWS_AS(incoming.result(slot), ResultMismatch);
}

TEST_CASE("A tensor that is not asked for is not looked at", "[client]") {
    BufferPool pool;
    detail::ResultOf<void> slot;
    client::Incoming::read(framed(kTwoFloats, "1234", pool), call(), *kPorts, "url").result(slot);
    SUCCEED();
}
