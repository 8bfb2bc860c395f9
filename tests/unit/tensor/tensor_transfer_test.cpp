
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include <shared_tensor/simulated.hpp>

#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

/// The transport that a tensor of so many bytes takes.
std::string transport_of(std::int64_t bytes, ExportPolicy policy) {
    TensorTransfer transfer({}, std::move(policy));
    const Json json = transfer.describe(transfer.wrap(zeros(DType::uint8, {bytes})));
    for (const TransportKind transport : kTransportKinds) {
        if (json.contains(name_of(transport))) return std::string(name_of(transport));
    }
    return "none";
}

ExportPolicy requiring(std::vector<TransportKind> transports, std::vector<TransportKind> accept = {}) {
    ExportPolicy policy = accepting(std::move(accept));
    policy.require = std::move(transports);
    return policy;
}

tensor::TransportNotPossible::Reasons reasons(ExportPolicy policy, const TensorRef& tensor) {
    TensorTransfer transfer({}, std::move(policy));
    try {
        transfer.describe(transfer.wrap(tensor));
    } catch (const tensor::TransportNotPossible& error) {
        return error.reasons();
    }
    return {};
}

}  // namespace

TEST_CASE("a reader that says nothing gets lists up to 64 elements, base64 of any size above", "[tensor]") {
    CHECK(transport_of(64, {}) == "data");
    CHECK(transport_of(65, {}) == "base64");
    CHECK(transport_of(1 << 20, {}) == "base64");
}

TEST_CASE("the first accepted transport whose bound a tensor keeps is taken", "[tensor]") {
    CHECK(transport_of(10, accepting({TransportKind::body, TransportKind::data})) == "body");
    CHECK(transport_of(10, accepting({TransportKind::data, TransportKind::body})) == "data");
    CHECK(transport_of(100, accepting({TransportKind::data, TransportKind::base64, TransportKind::body})) == "base64");
    CHECK(transport_of(100'000, accepting({TransportKind::data, TransportKind::base64, TransportKind::body})) ==
          "body");
}

TEST_CASE("beyond all bounds the most compact accepted transport is taken, in whatever order", "[tensor]") {
    CHECK(transport_of(100'000, accepting({TransportKind::data, TransportKind::base64})) == "base64");
    CHECK(transport_of(100'000, accepting({TransportKind::base64, TransportKind::data})) == "base64");
    CHECK(transport_of(100'000, accepting({TransportKind::data})) == "data");
}

TEST_CASE("the bounds are options", "[tensor]") {
    ExportPolicy policy = accepting({TransportKind::data, TransportKind::base64, TransportKind::body});
    policy.data_max_elements = 2;
    policy.base64_max_bytes = 4;
    CHECK(transport_of(2, policy) == "data");
    CHECK(transport_of(3, policy) == "base64");
    CHECK(transport_of(5, policy) == "body");
}

TEST_CASE("accepted transports that are not there are passed over", "[tensor]") {
    CHECK(transport_of(10, accepting({TransportKind::cuda_ipc, TransportKind::shm, TransportKind::body})) == "body");
}

TEST_CASE("a reader that accepts only what is not there gets the reason for each transport", "[tensor]") {
    const auto why = reasons(accepting({TransportKind::cuda_ipc, TransportKind::shm}), zeros(DType::float32, {1}));
    REQUIRE(why.size() == 2);
    CHECK(why[0].first == TransportKind::cuda_ipc);
    CHECK(why[0].second == "it is not built in");
    CHECK(why[1].first == TransportKind::shm);
}

TEST_CASE("a required transport is taken even where another is accepted first", "[tensor]") {
    CHECK(transport_of(10, requiring({TransportKind::body}, {TransportKind::data, TransportKind::body})) == "body");
    CHECK(transport_of(10, requiring({TransportKind::shm, TransportKind::base64}, {TransportKind::data})) == "base64");
}

TEST_CASE("a required transport that can't be had is an error although others could", "[tensor]") {
    const auto why = reasons(requiring({TransportKind::shm}, {TransportKind::body}), zeros(DType::float32, {1}));
    REQUIRE(why.size() == 1);
    CHECK(why[0].first == TransportKind::shm);
}

TEST_CASE("packed values never go as lists", "[tensor]") {
    const TensorRef packed = zeros(DType::float4_e2m1fn_x2, {4});
    CHECK(send(packed, {}).summary == "base64;tensors=1;copied=4");
    const auto why = reasons(requiring({TransportKind::data}), packed);
    REQUIRE(why.size() == 1);
    CHECK(why[0].second == "float4_e2m1fn_x2 has two values in a byte and no form as lists");
}

TEST_CASE("the text of a transport that is not possible names each transport and reason", "[tensor]") {
    const tensor::TransportNotPossible error({{TransportKind::shm, "no channel"}, {TransportKind::cuda_ipc, "no GPU"}});
    CHECK(error.what() == std::string("no transport can carry the tensor: shm: no channel; cuda_ipc: no GPU"));
}

TEST_CASE("the summary counts the tensors of both directions by transport", "[tensor]") {
    TensorTransfer transfer({}, accepting({TransportKind::body}));
    CHECK(transfer.summary().empty());
    const auto in = transfer.import(Json::parse(R"({"dtype":"float32","data":[1,2]})"));
    transfer.describe(in);
    transfer.describe(in);
    CHECK(transfer.summary() == "data;tensors=1;copied=8, body;tensors=2;copied=0");
}

TEST_CASE("a tensor that was only wrapped did not cross", "[tensor]") {
    TensorTransfer transfer;
    transfer.wrap(zeros(DType::float32, {1}));
    CHECK(transfer.summary().empty());
}

TEST_CASE("the items of a message may have policies of their own", "[tensor]") {
    TensorTransfer transfer({}, accepting({TransportKind::data}));
    const auto tensor = transfer.wrap(zeros(DType::float32, {1}));
    CHECK(transfer.describe(tensor).contains("data"));
    transfer.set_policy(accepting({TransportKind::body}));
    CHECK(transfer.describe(tensor).contains("body"));
}

TEST_CASE("an imported tensor can be sent on", "[tensor]") {
    const TensorRef tensor = arange<float>({3, 4});
    const Message first = send(tensor, only(TransportKind::body));
    TensorTransfer transfer(first.incoming(), only(TransportKind::base64));
    const Json json = transfer.describe(transfer.import(Json::parse(first.json)));
    CHECK(identical(TensorTransfer().import(json)->tensor(), tensor));
}

TEST_CASE("a large tensor is printed in pieces, and reads back the same whatever its strides and device", "[tensor]") {
    simulated::enable(1);
    const TensorRef plain = arange<float>({1'000'001});  // its base64 ends with a padding
    const TensorRef across = transposed(arange<float>({999, 1000}));
    for (const TransportKind transport : {TransportKind::base64, TransportKind::data}) {
        for (const TensorRef& tensor : {plain, across, simulated::to_device(plain)}) {
            TensorTransfer transfer({}, only(transport));
            const Json json = transfer.describe(transfer.wrap(tensor));
            const bool same = identical(TensorTransfer().import(json)->tensor(), tensor);
            CHECK(same);
        }
    }
}

TEST_CASE("a tensor with too many elements for data takes another accepted transport, or none", "[tensor]") {
    ExportPolicy policy = accepting({TransportKind::data, TransportKind::base64});
    policy.data_max_elements = 1000;
    policy.most_data_elements = 10;
    CHECK(transport_of(10, policy) == "data");
    CHECK(transport_of(11, policy) == "base64");
    policy.accept = {TransportKind::data};
    CHECK(transport_of(10, policy) == "data");
    TensorTransfer transfer({}, policy);
    CHECK_THROWS_AS(transfer.describe(transfer.wrap(zeros(DType::float32, {11}))), TooManyElements);
    CHECK(transfer.summary().empty());
}

TEST_CASE("base64 beyond the limit of its text is rejected before a byte of it is written", "[tensor]") {
    TensorTransfer transfer({}, only(TransportKind::base64));
    json_rpc::LongText text;
    text.set_limit(1000);
    CHECK_THROWS_AS(transfer.describe(transfer.wrap(zeros(DType::float32, {1000})), text), json_rpc::TextTooLong);
    CHECK(text.take_whole().ends_with(R"("base64":)"));
}

TEST_CASE("tensors are wrapped by other threads while one describes", "[tensor]") {
    TensorTransfer transfer({}, accepting({TransportKind::body}));
    const TensorRef tensor = arange<float>({10});
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < 1000; ++k)
                transfer.wrap(tensor);
        });
    }
    for (int k = 0; k < 1000; ++k)
        transfer.describe(transfer.wrap(tensor));
    threads.clear();
    CHECK(transfer.summary() == "body;tensors=1000;copied=0");
}
