#include "tensor/exchange.hpp"

#include <ATen/ATen.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include <shared_tensor/simulated.hpp>
#include <shared_tensor/torch.hpp>

#include "wire.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

/// The way that a tensor of so many bytes takes.
std::string way_of(std::int64_t bytes, ExportPolicy policy) {
    TensorExchange exchange({}, std::move(policy));
    const Json json = exchange.describe(exchange.wrap(at::zeros({bytes}, at::kByte)));
    for (const Way way : kWays) {
        if (json.contains(name_of(way))) return std::string(name_of(way));
    }
    return "none";
}

ExportPolicy accepting(std::vector<Way> ways) {
    ExportPolicy policy;
    policy.accept = std::move(ways);
    return policy;
}

ExportPolicy requiring(std::vector<Way> ways, std::vector<Way> accept = {}) {
    ExportPolicy policy = accepting(std::move(accept));
    policy.require = std::move(ways);
    return policy;
}

tensor::TransportNotPossible::Reasons reasons(ExportPolicy policy, const at::Tensor& tensor) {
    TensorExchange exchange({}, std::move(policy));
    try {
        exchange.describe(exchange.wrap(tensor));
    } catch (const tensor::TransportNotPossible& error) {
        return error.reasons();
    }
    return {};
}

}  // namespace

TEST_CASE("a reader that says nothing gets lists up to 64 elements, base64 of any size above", "[tensor]") {
    CHECK(way_of(64, {}) == "data");
    CHECK(way_of(65, {}) == "base64");
    CHECK(way_of(1 << 20, {}) == "base64");
}

TEST_CASE("the first accepted way whose bound a tensor keeps is taken", "[tensor]") {
    CHECK(way_of(10, accepting({Way::body, Way::data})) == "body");
    CHECK(way_of(10, accepting({Way::data, Way::body})) == "data");
    CHECK(way_of(100, accepting({Way::data, Way::base64, Way::body})) == "base64");
    CHECK(way_of(100'000, accepting({Way::data, Way::base64, Way::body})) == "body");
}

TEST_CASE("beyond all bounds the most compact accepted way is taken, in whatever order", "[tensor]") {
    CHECK(way_of(100'000, accepting({Way::data, Way::base64})) == "base64");
    CHECK(way_of(100'000, accepting({Way::base64, Way::data})) == "base64");
    CHECK(way_of(100'000, accepting({Way::data})) == "data");
}

TEST_CASE("the bounds are options", "[tensor]") {
    ExportPolicy policy = accepting({Way::data, Way::base64, Way::body});
    policy.data_max_elements = 2;
    policy.base64_max_bytes = 4;
    CHECK(way_of(2, policy) == "data");
    CHECK(way_of(3, policy) == "base64");
    CHECK(way_of(5, policy) == "body");
}

TEST_CASE("accepted ways that are not there are passed over", "[tensor]") {
    CHECK(way_of(10, accepting({Way::cuda_ipc, Way::shm, Way::body})) == "body");
}

TEST_CASE("a reader that accepts only what is not there gets the reason for each way", "[tensor]") {
    const auto why = reasons(accepting({Way::cuda_ipc, Way::shm}), at::zeros({1}));
    REQUIRE(why.size() == 2);
    CHECK(why[0].first == Way::cuda_ipc);
    CHECK(why[0].second == "it is not built in");
    CHECK(why[1].first == Way::shm);
}

TEST_CASE("a required way is taken even where another is accepted first", "[tensor]") {
    CHECK(way_of(10, requiring({Way::body}, {Way::data, Way::body})) == "body");
    CHECK(way_of(10, requiring({Way::shm, Way::base64}, {Way::data})) == "base64");
}

TEST_CASE("a required way that can't be had is an error although others could", "[tensor]") {
    const auto why = reasons(requiring({Way::shm}, {Way::body}), at::zeros({1}));
    REQUIRE(why.size() == 1);
    CHECK(why[0].first == Way::shm);
}

TEST_CASE("packed values never go as lists", "[tensor]") {
    const at::Tensor packed = at::zeros({4}, at::kByte).view(at::ScalarType::Float4_e2m1fn_x2);
    CHECK(send(packed, {}).summary == "base64;tensors=1;copied=4");
    const auto why = reasons(requiring({Way::data}), packed);
    REQUIRE(why.size() == 1);
    CHECK(why[0].second == "float4_e2m1fn_x2 has two values in a byte and no form as lists");
}

TEST_CASE("the text of a transport that is not possible names each way and reason", "[tensor]") {
    const tensor::TransportNotPossible error({{Way::shm, "no channel"}, {Way::cuda_ipc, "no GPU"}});
    CHECK(error.what() == std::string("no way to hand the tensor over: shm: no channel; cuda_ipc: no GPU"));
}

TEST_CASE("the summary counts the tensors of both directions by way", "[tensor]") {
    TensorExchange exchange({}, accepting({Way::body}));
    CHECK(exchange.summary().empty());
    const auto in = exchange.import(Json::parse(R"({"dtype":"float32","data":[1,2]})"));
    exchange.describe(in);
    exchange.describe(in);
    CHECK(exchange.summary() == "data;tensors=1;copied=8, body;tensors=2;copied=0");
}

TEST_CASE("a tensor that was only wrapped did not cross", "[tensor]") {
    TensorExchange exchange;
    exchange.wrap(at::zeros({1}));
    CHECK(exchange.summary().empty());
}

TEST_CASE("the items of a message may have policies of their own", "[tensor]") {
    TensorExchange exchange({}, accepting({Way::data}));
    const auto tensor = exchange.wrap(at::zeros({1}));
    CHECK(exchange.describe(tensor).contains("data"));
    exchange.set_policy(accepting({Way::body}));
    CHECK(exchange.describe(tensor).contains("body"));
}

TEST_CASE("an imported tensor can be sent on", "[tensor]") {
    const at::Tensor tensor = at::rand({3, 4});
    const Wire first = send(tensor, only(Way::body));
    TensorExchange exchange(first.incoming(), only(Way::base64));
    const Json json = exchange.describe(exchange.import(Json::parse(first.json)));
    CHECK(identical(TensorExchange().import(json)->tensor(), tensor));
}

TEST_CASE("a large tensor is printed in pieces, and reads back the same whatever its strides and device", "[tensor]") {
    simulated::enable(1);
    const at::Tensor plain = at::arange(1'000'001, at::kFloat);  // its base64 ends with a padding
    const at::Tensor across = at::arange(999'000, at::kFloat).reshape({999, 1000}).t();
    for (const Way way : {Way::base64, Way::data}) {
        for (const at::Tensor& tensor : {plain, across, simulated::to_device(plain).as<at::Tensor>()}) {
            TensorExchange exchange({}, only(way));
            const Json json = exchange.describe(exchange.wrap(tensor));
            const bool same =
                identical(TensorExchange().import(json)->tensor(), simulated::on_device(tensor) ? plain : tensor);
            CHECK(same);
        }
    }
}

TEST_CASE("a tensor with too many elements for data takes another accepted transport, or none", "[tensor]") {
    ExportPolicy policy = accepting({Way::data, Way::base64});
    policy.data_max_elements = 1000;
    policy.most_data_elements = 10;
    CHECK(way_of(10, policy) == "data");
    CHECK(way_of(11, policy) == "base64");
    policy.accept = {Way::data};
    CHECK(way_of(10, policy) == "data");
    TensorExchange exchange({}, policy);
    CHECK_THROWS_AS(exchange.describe(exchange.wrap(at::zeros({11}))), TooManyElements);
    CHECK(exchange.summary().empty());
}

TEST_CASE("base64 beyond the limit of its text is rejected before a byte of it is written", "[tensor]") {
    TensorExchange exchange({}, only(Way::base64));
    json_rpc::LongText text;
    text.set_limit(1000);
    CHECK_THROWS_AS(exchange.describe(exchange.wrap(at::zeros({1000})), text), json_rpc::TextTooLong);
    CHECK(text.take_whole().ends_with(R"("base64":)"));
}

TEST_CASE("tensors are wrapped by other threads while one describes", "[tensor]") {
    TensorExchange exchange({}, accepting({Way::body}));
    const at::Tensor tensor = at::rand({10});
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < 1000; ++k)
                exchange.wrap(tensor);
        });
    }
    for (int k = 0; k < 1000; ++k)
        exchange.describe(exchange.wrap(tensor));
    threads.clear();
    CHECK(exchange.summary() == "body;tensors=1000;copied=0");
}
