// A TensorRef or an at::Tensor that is none, wherever a tensor can stand: an error, and all goes on.

#include <ATen/core/Tensor.h>

#include <catch2/catch_test_macros.hpp>
#include <optional>

#include <shared_tensor/client.hpp>
#include <shared_tensor/codecs.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/share.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

using namespace shared_tensor;

namespace {

Registry functions() {
    Registry registry;
    registry.add("none", [] { return TensorRef(); });
    registry.add("none_of_torch", [] { return at::Tensor(); });
    registry.add("some_of_none", [] { return std::optional<TensorRef>(); });
    registry.add(
        "elements", [](const TensorRef& x) { return x.elements(); }, arg("x"));
    registry.add(
        "stream_of_none", [](Writer<TensorRef> out) { out.write(TensorRef()); }, arg("out"));
    registry.add(
        "take", [](Reader<TensorRef> in) { return in.next().has_value(); }, arg("in"));
    return registry;
}

ServerOptions any_port() {
    ServerOptions options;
    options.port = 0;
    return options;
}

}  // namespace

TEST_CASE("A tensor that is none is an error as a result, an argument, an item and under a name", "[client]") {
    Server server(functions(), any_port());
    server.start();
    ClientOptions far;
    far.url = server.url();
    far.local_socket = "none";
    for (const Client& client : {Client(server.url()), Client(far)}) {
        CHECK_THROWS_AS(client.call<TensorRef>("none"), RpcError);
        CHECK_THROWS_AS(client.call<at::Tensor>("none_of_torch"), RpcError);
        CHECK(client.call<std::optional<TensorRef>>("some_of_none") == std::nullopt);
        CHECK_THROWS_AS(client.call<std::uint64_t>("elements", TensorRef()), InvalidValue);
        CHECK_THROWS_AS(client.call<std::uint64_t>("elements", at::Tensor()), InvalidValue);
        CHECK_THROWS_AS(NamedTensors(client).put("x", TensorRef()), InvalidValue);
        {
            auto call = client.stream<void>("stream_of_none");
            auto reader = call.reader<TensorRef>();
            CHECK_THROWS_AS(reader.next(), RpcError);
        }
        {
            auto call = client.stream<bool>("take");
            auto writer = call.writer<TensorRef>();
            CHECK_THROWS_AS(writer.write(TensorRef()), InvalidValue);
            writer.end();
            CHECK_FALSE(call.result());
        }
        float numbers[] = {1, 2, 3};
        CHECK(client.call<std::uint64_t>("elements", TensorRef(numbers, DType::float32, {3})) == 3);
    }
}
