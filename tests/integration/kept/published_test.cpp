// Named versions of tensors that lie in the daemon already, where others could write to them.

#include <ATen/core/Tensor.h>  // before Catch, whose CHECK libtorch would replace by its own
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <fcntl.h>
#include <sys/mman.h>

#include <catch2/catch_test_macros.hpp>

#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "integration/memory/raw_channel.hpp"
#include "keeping_daemon.hpp"
#include "local/segments/segment.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// The answer of tensor.put of what the client holds in the daemon.
Json publish(const KeepingDaemon& server, const std::string& name, const at::Tensor& result) {
    const Json tensor{{"$ref", ref(result).name}};
    return call(server.daemon.port(), "tensor.put", {{"name", name}, {"tensor", tensor}});
}

HttpReply file_of(const KeepingDaemon& server, const std::string& name) {
    HttpPeer peer(server.daemon.port());
    peer.request("GET", "/tensors/" + name + ".raw", "");
    return peer.read();
}

bool reads(const KeepingDaemon& server, const std::string& name, float value) {
    return at::equal(NamedTensors(server.client()).get(name).tensor(), all(value)) &&
           at::equal(NamedTensors(server.by_bytes()).get(name).tensor(), all(value));
}

}  // namespace

TEST_CASE("A version that was published from memory which clients write to keeps its bytes", "[kept][names]") {
    const KeepingDaemon server;
    const at::Tensor board = server.client().call<at::Tensor>("board", "b", kCount);
    board.fill_(1);
    const Json put = publish(server, "x", board);
    CHECK(put["copied"] == 4 * kCount);
    const HttpReply before = file_of(server, "x");
    board.fill_(kLater);
    const HttpReply after = file_of(server, "x");
    CHECK(after.header("ETag") == before.header("ETag"));
    CHECK(after.body == before.body);
    CHECK(reads(server, "x", 1));
    CHECK(at::equal(server.by_bytes().call<at::Tensor>("board", "b", kCount), all(kLater)));
}

TEST_CASE("A version that was published from a buffer which its function fills anew keeps its bytes", "[kept][names]") {
    const KeepingDaemon server;
    const Client client = server.client();
    const auto buffer = client.call<at::Tensor>("buffer", "b", kCount, 1.0);
    CHECK(publish(server, "x", buffer)["copied"] == 4 * kCount);
    CHECK(at::equal(client.call<at::Tensor>("buffer", "b", kCount, 666.0), all(kLater)));
    CHECK(reads(server, "x", 1));
}

TEST_CASE("A result that nobody else in the daemon holds is published where it lies, and sealed", "[kept][names]") {
    const KeepingDaemon server;
    const int port = server.daemon.port();
    const Client client = server.client();
    const auto made = client.call<at::Tensor>("made", kCount, 1.0);
    CHECK(publish(server, "x", made)["copied"] == 0);
    CHECK(publish(server, "y", made)["copied"] == 0);

    RawChannel channel(port);
    const HeaderList headers{{"Shared-Tensor-Session", channel.open()}, {"Shared-Tensor-Accept", "shm"}};
    const auto seals_of = [&](const Json& result) {
        REQUIRE(channel.ask("segment.get", {{"segment", result["$tensor"]["shm"]["segment"]}}).contains("result"));
        return ::fcntl(channel.descriptors.front().get(), F_GET_SEALS);
    };
    CHECK(seals_of(call(port, "tensor.get", {{"name", "x"}}, headers)["tensor"]) ==
          (local::kSeals | local::kFinalSeals));
    CHECK(::fcntl(channel.descriptors.front().get(), F_ADD_SEALS, F_SEAL_GROW) != 0);
    CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, channel.descriptors.front().get(), 0) ==
          MAP_FAILED);
    CHECK(seals_of(call(port, "made", {kCount, 2.0}, headers)) == local::kSeals);
    CHECK(reads(server, "x", 1));
    CHECK(reads(server, "y", 1));
}
