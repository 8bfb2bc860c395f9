
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <shared_tensor/value.hpp>

#include "protocol/codec/frame.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

/// The floats 0, 1, 2, ... as a received body.
std::shared_ptr<std::vector<float>> floats(std::size_t count) {
    auto body = std::make_shared<std::vector<float>>(count);
    std::iota(body->begin(), body->end(), 0.0F);
    return body;
}

Incoming incoming(const std::shared_ptr<std::vector<float>>& body) { return {std::as_bytes(std::span(*body)), body}; }

Json descriptor(const char* text) { return Json::parse(text); }

}  // namespace

TEST_CASE("a tensor in the body is a view of the received bytes", "[tensor]") {
    const auto body = floats(16);
    TensorTransfer transfer(incoming(body));
    const auto tensor =
        transfer.import(descriptor(R"({"dtype":"float32","shape":[2,3],"body":{"offset":16,"size":24}})"));
    CHECK(tensor->tensor().data() == reinterpret_cast<const std::byte*>(body->data() + 4));
    CHECK(transfer.summary() == "body;tensors=1;copied=0");
}

TEST_CASE("strides in the body make views too", "[tensor]") {
    const auto body = floats(6);
    TensorTransfer transfer(incoming(body));
    const auto tensor = transfer.import(
        descriptor(R"({"dtype":"float32","shape":[3,2],"strides":[1,3],"body":{"offset":0,"size":24}})"));
    CHECK(tensor->tensor().data() == reinterpret_cast<const std::byte*>(body->data()));
    CHECK(identical(tensor->tensor(), transposed(arange<float>({2, 3}))));
}

TEST_CASE("a tensor keeps the body alive, and lets it go with its last view", "[tensor]") {
    auto body = floats(16);
    const std::weak_ptr<std::vector<float>> watch = body;
    TensorRef view;
    {
        TensorTransfer transfer(incoming(body));
        body.reset();
        view = transfer.import(descriptor(R"({"dtype":"float32","shape":[16],"body":{"offset":0,"size":64}})"))
                   ->tensor()
                   .select(3);
    }
    CHECK_FALSE(watch.expired());
    CHECK(elements_of<float>(view) == std::vector{3.0F});
    view = {};
    CHECK(watch.expired());
}

TEST_CASE("bytes that are not aligned to the item size are copied once, and counted", "[tensor]") {
    const TensorRef expected = arange<double>({4});
    auto body = std::make_shared<std::vector<std::byte>>(40);
    std::memcpy(body->data() + 1, expected.data(), 32);
    TensorTransfer transfer({*body, body});
    const auto tensor = transfer.import(descriptor(R"({"dtype":"float64","shape":[4],"body":{"offset":1,"size":32}})"));
    CHECK(identical(tensor->tensor(), expected));
    CHECK(transfer.summary() == "body;tensors=1;copied=32");

    const auto part =
        transfer.import(descriptor(R"({"dtype":"float64","shape":[2],"strides":[2],"body":{"offset":1,"size":32}})"));
    CHECK(identical(part->tensor(), tensor_of<double>({0, 2})));
    CHECK(transfer.summary() == "body;tensors=2;copied=48");
}

TEST_CASE("bools other than 0 and 1 are rejected, unless they lie between the elements", "[tensor]") {
    const auto body =
        std::make_shared<std::vector<std::byte>>(std::vector{std::byte{1}, std::byte{7}, std::byte{0}, std::byte{1}});
    TensorTransfer transfer({*body, body});
    CHECK_THROWS_AS(transfer.import(descriptor(R"({"dtype":"bool","shape":[3],"body":{"offset":0,"size":3}})")),
                    InvalidValue);
    CHECK_NOTHROW(transfer.import(descriptor(R"({"dtype":"bool","shape":[2],"body":{"offset":2,"size":2}})")));
    CHECK_NOTHROW(
        transfer.import(descriptor(R"({"dtype":"bool","shape":[2],"strides":[2],"body":{"offset":0,"size":3}})")));
    CHECK_THROWS_AS(
        transfer.import(descriptor(R"({"dtype":"bool","shape":[2],"strides":[1],"body":{"offset":0,"size":3}})")),
        InvalidValue);
}

TEST_CASE("contiguous tensors leave by body from where they lie", "[tensor]") {
    const TensorRef tensor = arange<float>({3, 5});
    TensorTransfer transfer({}, only(TransportKind::body));
    const Json json = transfer.describe(transfer.wrap(tensor));
    REQUIRE(transfer.body().parts().size() == 1);
    CHECK(transfer.body().parts()[0].bytes.data() == tensor.data());
    CHECK(json == descriptor(R"({"dtype":"float32","shape":[3,5],"device":"cpu","body":{"offset":0,"size":60}})"));
    CHECK(transfer.summary() == "body;tensors=1;copied=0");
}

TEST_CASE("a cut of a contiguous tensor leaves without a copy", "[tensor]") {
    const TensorRef rows = arange<float>({10, 5}).slice(2, 7);
    TensorTransfer transfer({}, only(TransportKind::body));
    transfer.describe(transfer.wrap(rows));
    CHECK(transfer.body().parts()[0].bytes.data() == rows.data());
    CHECK(transfer.body().size() == 100);
}

TEST_CASE("what is not contiguous is made so, and counted", "[tensor]") {
    TensorTransfer transfer({}, only(TransportKind::body));
    transfer.describe(transfer.wrap(transposed(arange<float>({3, 5}))));
    CHECK(transfer.summary() == "body;tensors=1;copied=60");
}

TEST_CASE("outgoing bytes live as long as the parts that hold them", "[tensor]") {
    std::vector<BodyPart> parts;
    {
        TensorTransfer transfer({}, only(TransportKind::body));
        transfer.describe(transfer.wrap(tensor_of(std::vector<std::uint8_t>(64, 7))));
        parts = transfer.body().parts();
    }
    for (const std::byte byte : parts.at(0).bytes)
        REQUIRE(byte == std::byte{7});
}

TEST_CASE("each tensor of a body begins at a multiple of 64 bytes", "[tensor]") {
    TensorTransfer transfer({}, only(TransportKind::body));
    const Json first = transfer.describe(transfer.wrap(zeros(DType::uint8, {3})));
    const Json empty = transfer.describe(transfer.wrap(zeros(DType::uint8, {0})));
    const Json second = transfer.describe(transfer.wrap(zeros(DType::float32, {2})));
    CHECK(first["body"]["offset"] == 0);
    CHECK(empty["body"]["size"] == 0);
    CHECK(second["body"]["offset"] == 64);
    CHECK(transfer.body().size() == 72);
    std::size_t bytes = 0;
    for (const BodyPart& part : transfer.body().parts())
        bytes += part.bytes.size();
    CHECK(bytes == transfer.body().size());
}

TEST_CASE("a message in its frame reads back", "[tensor]") {
    const TensorRef tensor = arange<double>({7, 3});
    const Message stream = send(tensor, only(TransportKind::body));
    std::string message = codec::frame_head(stream.json);
    message.append(reinterpret_cast<const char*>(stream.body->data()), stream.body->size());
    const auto frame = codec::split_frame(std::as_bytes(std::span(message)));
    REQUIRE(frame);
    TensorTransfer transfer({frame->tensors, nullptr});
    CHECK(identical(transfer.import(Json::parse(frame->json))->tensor(), tensor));
}
