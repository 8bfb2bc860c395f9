// What has to hold whatever way a tensor takes: body, shm, simulated, and on a GPU cuda_ipc.

#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <future>
#include <optional>
#include <stdexcept>

#include <shared_tensor/simulated.hpp>
#include <shared_tensor/torch.hpp>

#include "media.hpp"
#include "support/rpc.hpp"
#include "tensor/layout.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// Any bits, but for bool, which has two values.
at::Tensor pattern(tensor::DType dtype, const std::vector<std::int64_t>& shape) {
    const at::Tensor tensor = at::empty(shape, at::TensorOptions(scalar_type(dtype)));
    auto* bytes = static_cast<std::uint8_t*>(tensor.mutable_data_ptr());
    for (std::size_t i = 0; i < tensor.nbytes(); ++i)
        bytes[i] = static_cast<std::uint8_t>(dtype == tensor::DType::bool_ ? i % 3 % 2 : i * 37 + 11);
    return tensor;
}

}  // namespace

TEST_CASE("Every dtype crosses in both directions and stays where it was", "[media]") {
    const Connected here;
    for (std::size_t i = 0; i < tensor::kDTypes; ++i) {
        const auto dtype = static_cast<tensor::DType>(i);
        CAPTURE(tensor::name_of(dtype));
        const at::Tensor x = put(pattern(dtype, {3, 5, 1024}), here.transport.place);
        const auto y = here.client.call<at::Tensor>("echo", x);
        CHECK(same_values(x, y));
        CHECK(lies_at(y, here.transport.place));
    }
    CHECK(leases_become(here.client, 0));
}

TEST_CASE("Scalars, empty tensors and views with gaps and offsets cross", "[media]") {
    const Connected here;
    const at::Tensor all = put(at::arange(kMany, at::kFloat), here.transport.place).view({256, 1024});
    const auto crosses = [&](const at::Tensor& x) {
        const auto y = here.client.call<at::Tensor>("echo", x);
        return y.sizes() == x.sizes() && same_values(x, y) && here.client.call<bool>("lies_here", x);
    };
    CHECK(crosses(all[3][7]));
    CHECK(crosses(all.t()));
    CHECK(crosses(all.slice(0, 5, 250, 3).slice(1, 1, 1000, 2)));
    CHECK(crosses(all.slice(0, 10, 10)));
    CHECK(crosses(all.narrow(1, 0, 0)));
    CHECK(crosses(all.slice(0, 1, 2).expand({4, 1024})));
    CHECK(crosses(all.slice(0, 255, 256)));
    CHECK(leases_become(here.client, 0));
}

TEST_CASE("Autograd's history stays behind, lazy conjugation and negation are carried out", "[media]") {
    const Connected here({"simulated"});  // operators bring such tensors to host memory
    const at::Tensor real = put(at::arange(kMany, at::kFloat), here.transport.place);
    at::Tensor grown = real.detach().clone();
    grown.set_requires_grad(true);
    const auto y = here.client.call<at::Tensor>("echo", grown);
    CHECK(!y.requires_grad());
    CHECK(same_values(y, real));
    const at::Tensor z = at::complex(real, real);
    CHECK(same_values(here.client.call<at::Tensor>("echo", z.conj()), z.conj().resolve_conj()));
    CHECK(same_values(here.client.call<at::Tensor>("echo", at::imag(z.conj())), at::imag(z.conj()).resolve_neg()));
}

TEST_CASE("Items of streams cross both ways and stay where they were", "[media][streams]") {
    const Connected here;
    auto call = here.client.stream("echo_each");
    auto items = call.writer<at::Tensor>();
    auto answers = call.reader<at::Tensor>();
    for (int i = 0; i < 50; ++i) {
        const at::Tensor x = put(at::arange(i, kMany + i, at::kFloat), here.transport.place);
        REQUIRE(items.write(x));
        const auto y = answers.next();
        REQUIRE(y);
        CHECK(same_values(*y, x));
        CHECK(lies_at(*y, here.transport.place));
    }
    items.end();
    CHECK_FALSE(answers.next());
    call.result();
    CHECK(leases_become(here.client, 0));
}

TEST_CASE("Items of one tensor are read in any order and outlive their stream, and what nobody reads goes back",
          "[media][streams]") {
    const Connected here;
    std::vector<at::Tensor> kept;
    auto call = here.client.stream("held_each", 1'000);
    {
        auto items = call.reader<at::Tensor>();
        for (int i = 0; i < 20; ++i) {
            auto item = items.next();
            REQUIRE(item);
            if (i % 5 == 0) kept.push_back(*item);
        }
    }
    call.result();  // all that was on its way has come
    for (const at::Tensor& item : kept)
        CHECK(is_ramp(item));
    std::swap(kept.front(), kept.back());
    kept.pop_back();
    CHECK(is_ramp(kept.front()));
    kept.clear();
    CHECK(leases_become(here.client, 0));
    CHECK(is_ramp(here.client.call<at::Tensor>("held")));
}

TEST_CASE("The result of a call that streams is given back if nobody reads it, and is read once", "[media][streams]") {
    const Connected here;
    {
        auto call = here.client.stream<at::Tensor>("item_and_result");
        auto items = call.reader<at::Tensor>();
        CHECK(items.next());
        CHECK_FALSE(items.next());
    }
    CHECK(leases_become(here.client, 0));
    {
        auto call = here.client.stream<at::Tensor>("item_and_result");
        CHECK(is_ramp(call.result()));
        CHECK_THROWS_AS(call.result(), std::logic_error);
    }
    CHECK(leases_become(here.client, 0));
}

TEST_CASE("A function may write to its argument, and the caller's stays as it was", "[media]") {
    const Connected here;
    const at::Tensor host = at::arange(kMany, at::kFloat);
    const at::Tensor x = put(host, here.transport.place);
    CHECK(same_values(here.client.call<at::Tensor>("doubled_in_place", x), at::mul(host, 2)));
    CHECK(same_values(x, host));
}

TEST_CASE("What a client writes to a result in host memory is nobody else's", "[media]") {
    // Device memory has no copy on write: what is written is seen by all, as CUDA has it.
    const Connected here({"simulated", "cuda_ipc"});
    here.client.call<at::Tensor>("held").zero_();
    CHECK(is_ramp(here.client.call<at::Tensor>("held")));
}

TEST_CASE("One result of three clients is released in every order", "[media]") {
    const TransportCase transport = any_transport();
    CAPTURE(transport.name);
    const TransportServer server(transport);
    const std::vector<Client> clients{server.client(), server.client(), server.client()};
    std::vector<std::size_t> order{0, 1, 2};
    do {
        std::vector<std::optional<at::Tensor>> tensors;
        for (const Client& client : clients)
            tensors.emplace_back(client.call<at::Tensor>("held"));
        for (const std::size_t one : order) {
            CHECK(is_ramp(*tensors[one]));
            tensors[one].reset();
            for (const auto& rest : tensors)
                CHECK((!rest || is_ramp(*rest)));
        }
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(leases_become(clients[0], 0));
}

TEST_CASE("Views of a result outlive it, its client's object and each other", "[media]") {
    const TransportCase transport = any_transport();
    CAPTURE(transport.name);
    const TransportServer server(transport);
    auto client = std::make_unique<Client>(server.client());
    const Client other = server.client();
    at::Tensor row = client->call<at::Tensor>("held").view({512, 512})[7];
    const auto part = client->call<at::Tensor>("held_part", 3, 5);
    client.reset();
    CHECK(row[1].item<float>() == 7 * 512 + 1);
    CHECK(part[2][4].item<float>() == 4 * 512 + 3 + 2 * 5);
    row = at::Tensor();
    CHECK(part[0][0].item<float>() == 3);
}

TEST_CASE("A result that is not ready when its answer is, is waited for", "[media]") {
    const Connected here;
    for (int round = 0; round < 3; ++round)
        CHECK(is_ramp(here.client.call<at::Tensor>("late", kMany, 300)));
}

TEST_CASE("An argument lives until its call is over, whatever its owner does", "[media]") {
    const Connected here;
    const char* function = GENERATE("sum_later", "sum_borrowed");
    for (int round = 0; round < 3; ++round) {
        auto sum = std::async(std::launch::async, [&] {
            return here.client.call<double>(function, put(at::ones({kMany}, at::kFloat), here.transport.place), 100);
        });
        const at::Tensor other = put(at::zeros({kMany}, at::kFloat), here.transport.place);
        CHECK(sum.get() == kMany);
    }
    CHECK(leases_become(here.client, 0));
}

TEST_CASE("Results survive the death of their server, and the client finds the next one", "[media]") {
    const TransportCase transport = any_transport({"cuda_ipc"});  // CUDA calls memory undefined whose process is gone
    CAPTURE(transport.name);
    auto server = std::make_unique<TransportServer>(transport);
    const int port = server->port();
    const Client client = server->client();
    const auto held = client.call<at::Tensor>("held");
    server->child().signal(SIGKILL);
    server->child().wait();
    CHECK_THROWS_AS(client.call<at::Tensor>("held"), RpcError);
    CHECK(is_ramp(held));
    server = std::make_unique<TransportServer>(transport, Words{}, port);
    CHECK(eventually([&] {
        try {
            return is_ramp(client.call<at::Tensor>("numbers", 1000), 1000);
        } catch (const RpcError&) {
            return false;
        }
    }));
    CHECK(is_ramp(held));
}

TEST_CASE("A leased tensor is got as a file from where it lies", "[media]") {
    const Connected here({"body"});
    const auto got = [&](const at::Tensor& leased, const HeaderList& headers) {
        const Json leases = call(here.server.port(), "lease.list")["leases"];
        REQUIRE(leases.size() == 1);
        HttpPeer peer(here.server.port());
        peer.request("GET", "/tensors/" + leases[0]["id"].get<std::string>() + ".raw", {}, headers);
        const std::string body = peer.read().body;
        const at::Tensor read = leased.cpu().contiguous();
        const std::string_view wanted(static_cast<const char*>(read.const_data_ptr()), read.nbytes());
        return headers.empty() ? body == wanted : body == wanted.substr(1'000'003, 2'000'000);
    };
    const HeaderList range{{"Range", "bytes=1000003-3000002"}};
    {
        const auto x = here.client.call<at::Tensor>("numbers", 3'000'001);  // 11 MiB and a bit
        CHECK(lies_at(x, here.transport.place));
        CHECK(got(x, {}));
        CHECK(got(x, range));
    }
    CHECK(leases_become(here.client, 0));
    const auto strided = here.client.call<at::Tensor>("strided", 2048);
    if (here.transport.on_device()) CHECK_FALSE(strided.is_contiguous());
    CHECK(got(strided, {}));
    CHECK(got(strided, range));
}

TEST_CASE("A killed client's leases are gone at once, and its memory with its process", "[media]") {
    const Connected here;
    Role holder = holding_client(here.server, here.transport, 50);
    REQUIRE(holder.ready());
    if (here.transport.channel) CHECK(totals_of(here.client)["shared_memory"]["leases"] == 50);
    holder.kill();
    CHECK(leases_become(here.client, 0));
    CHECK(deferred_frees_become(here.client, 0));
    CHECK(is_ramp(here.client.call<at::Tensor>("held")));
}

TEST_CASE("A hundred rounds leave nothing behind", "[media]") {
    const Connected here;
    for (int round = 0; round < 100; ++round) {
        const at::Tensor x = put(at::arange(round, round + 20'000, at::kFloat), here.transport.place);
        REQUIRE(same_values(here.client.call<at::Tensor>("echo", x), x));
    }
    CHECK(leases_become(here.client, 0));
    CHECK(eventually([&] { return totals_of(here.client)["device_memory"]["open"] == 0; }));
    if (!(here.transport == "simulated")) return;
    CHECK(eventually([] { return simulated::statistics().open == 0 && simulated::statistics().allocations == 0; }));
    const simulated::Statistics ours = simulated::statistics();
    CHECK(ours.freed_while_open + ours.opened_twice + ours.closed_twice == 0);
    std::map<std::string, std::uint64_t> there;  // a lease has ended before what it kept is freed
    eventually([&] {
        there = counts_of(here.client);
        return there.at("allocations") == 0 && there.at("events") == 0;
    });
    CHECK(there.at("undefined") == 0);
    CHECK(there.at("opened") == there.at("closed"));
    CHECK(there.at("allocations") == 0);
    CHECK(there.at("events") == 0);
}
