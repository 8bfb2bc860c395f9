// Arguments and results in shared memory: what is copied, leases, references to results that stay in the server, and
// transports that are required.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>
#include <thread>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/object.hpp>

#include "integration/client/transfers.hpp"

using Catch::Matchers::ContainsSubstring;
using namespace shared_tensor::test;
using namespace shared_tensor;

namespace {

constexpr std::int64_t kBig = 1 << 20;  // elements

Client requiring(const Client& client, std::string transports) {
    CallOptions options;
    options.require = std::move(transports);
    return client.with(options);
}

struct Memory : Example {
    const TensorRef x = ramp(kBig);
    Client far = server.far();

    Json by_shm() const {
        Json total = server.totals()["tensors"]["shm"];
        total.erase("bytes");
        return total;
    }
    Json memory() const { return server.totals()["shared_memory"]; }
    TensorRef scale(const TensorRef& tensor, double factor) const {
        return client.call<TensorRef>("scale", tensor, factor);
    }
};

}  // namespace

TEST_CASE_METHOD(Memory, "A tensor and its result cross in shared memory, and the lease ends with the last of it",
                 "[client][memory]") {
    {
        const TensorRef y = scale(x, 3);
        CHECK(identical(y, ramp(kBig, 3)));
        CHECK(memory()["leases"] == 1);
        CHECK(memory()["leased_bytes"] == 4 * kBig);
        const TensorRef row = strided(y, {1024});
        CHECK(identical(row, ramp(1024, 3)));
    }
    CHECK(server.leases_become(0));
    CHECK(client.statistics().bytes_in < kBig);
    CHECK(client.statistics().bytes_out < kBig);
}

TEST_CASE_METHOD(Memory, "Nothing is copied of a result that was born in shared memory", "[client][memory]") {
    CHECK(identical(client.call<TensorRef>("ramp", kBig), x));
    CHECK(identical(client.call<TensorRef>("scaled_ramp", kBig, 3.0), ramp(kBig, 3)));
    for (int i = 0; i < 2; ++i)
        CHECK(identical(client.call<TensorRef>("held_ramp", kBig), x));
    CHECK(identical(client.call<TensorRef>("ramp", 10), ramp(10)));
    CHECK(by_shm() == Json{{"tensors", 5}, {"copied_bytes", 0}});
    CHECK(client.call<TensorRef>("ramp", 0).elements() == 0);
    CHECK_THROWS_AS(client.call<TensorRef>("ramp", -1), FunctionFailed);
}

TEST_CASE_METHOD(Memory, "Nothing is copied of an argument that was born in shared memory", "[client][memory]") {
    const TensorRef born = client.empty_in_shared_memory({kBig}, DType::float32);
    for (int i = 0; i < 3; ++i) {
        std::fill_n(reinterpret_cast<float*>(born.mutable_data()), kBig, static_cast<float>(i));
        const TensorRef view = transposed(strided(born, {1024, kBig / 1024}));
        CHECK(elements_of<float>(scale(view, 2)) == std::vector<float>(kBig, static_cast<float>(2 * i)));
    }
    CHECK(by_shm()["copied_bytes"] == 3 * 4 * kBig);  // the results
    const TensorRef elsewhere = far.empty_in_shared_memory({3}, DType::float32);
    std::fill_n(reinterpret_cast<float*>(elsewhere.mutable_data()), 3, 1.0F);
    CHECK(elements_of<float>(far.call<TensorRef>("scale", elsewhere, 2.0)) == std::vector<float>{2, 2, 2});
}

TEST_CASE_METHOD(Memory, "A result that the function made writable is written to by all who have it",
                 "[client][memory]") {
    const auto board = [](const Client& one) { return one.call<TensorRef>("board", kBig); };
    const auto first = [](const TensorRef& tensor) { return elements_of<float>(tensor)[0]; };
    TensorRef mine = board(client);
    const TensorRef theirs = board(server.client());
    *reinterpret_cast<float*>(mine.mutable_data()) = 7;
    CHECK(first(theirs) == 7);
    CHECK(first(board(far)) == 7);
    mine = {};
    CHECK(server.leases_become(1));
    CHECK(first(board(client)) == 7);
    CHECK(memory()["segments"] == 1);
}

TEST_CASE_METHOD(Memory, "The kept result of a task is copied into shared memory once", "[client][memory]") {
    const auto task = client.submit<TensorRef>("scale", x, 2.0);
    for (int i = 0; i < 3; ++i)
        CHECK(identical(client.task<TensorRef>(task.id()).get(), ramp(kBig, 2)));
    // The argument, which the task may read after its submission was answered, and the result.
    CHECK(by_shm() == Json{{"tensors", 4}, {"copied_bytes", 2 * 4 * kBig}});
}

TEST_CASE_METHOD(Memory, "A hundred rounds use the same few segments", "[client][memory]") {
    for (int i = 0; i < 100; ++i) {
        REQUIRE(identical(scale(ramp(kBig, static_cast<float>(i)), 2), ramp(kBig, static_cast<float>(2 * i))));
        if (i % 5 == 4) REQUIRE(server.leases_become(0));  // a client lets go some moments later
    }
    CHECK(server.leases_become(0));
    CHECK(memory()["leases_granted"] == 100);
    CHECK(eventually([&] { return memory()["segments"] == 0; }));
    CHECK(memory()["idle_segments"].get<int>() <= 10);
    const Client session = client.new_session();  // which keeps the client's memory
    CHECK(session.session() != client.session());
    CHECK(identical(session.call<TensorRef>("scale", x, 2.0), ramp(kBig, 2)));
    CHECK(memory()["leases_granted"] == 101);
}

TEST_CASE_METHOD(Memory, "Strided, empty and small tensors of many threads cross", "[client][memory]") {
    std::atomic<int> right{0};
    {
        std::vector<std::jthread> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.emplace_back([&, thread] {
                for (int i = 0; i < 25; ++i) {
                    const auto step = static_cast<float>(thread + 1);
                    const auto view = [&](float factor) {
                        return transposed(strided(ramp(6 * (i + 1), factor), {2, 3 * (i + 1)}));
                    };
                    const bool same = identical(scale(view(step), 2), view(2 * step)) &&
                                      scale(zeros(DType::float32, {2, 0}), 2).elements() == 0;
                    right += same ? 1 : 0;
                }
            });
        }
    }
    CHECK(right == 100);
    CHECK(server.leases_become(0));
}

TEST_CASE_METHOD(Memory, "Small tensors go as bytes, from what size on a client shares memory is its option",
                 "[client][memory]") {
    const auto shared = [&](std::size_t min_shared_bytes, std::int64_t elements) {
        ClientOptions options;
        options.url = server.url();
        options.min_shared_bytes = min_shared_bytes;
        const int before = by_shm()["tensors"];
        Client(options).call<double>("slow_sum", ramp(elements), 0.0);
        return by_shm()["tensors"].get<int>() - before;
    };
    CHECK(shared(ClientOptions().min_shared_bytes, 8'191) == 0);
    CHECK(shared(ClientOptions().min_shared_bytes, 8'192) == 1);
    CHECK(shared(100'000, 8'192) == 0);
    CHECK(shared(100'000, 25'000) == 1);
    CHECK(shared(0, 1) == 1);
}

TEST_CASE_METHOD(Memory, "A result as it came is an argument that does not leave the server, until it was let go",
                 "[client][memory][refs]") {
    auto held = client.call<TensorRef>("held_ramp", kBig);
    const auto bytes = tensor::mutable_bytes(held);
    std::fill(bytes.begin(), bytes.end(), std::byte{0});  // of no account: what the server has is meant
    const int before = by_shm()["tensors"];
    const NamedReference reference = ref(held);
    CHECK(identical(client.call<TensorRef>("scale", reference, 3.0), ramp(kBig, 3)));
    CHECK(by_shm()["tensors"] == before + 1);  // the result, no argument
    CHECK(client.statistics().bytes_out < 10'000);
    held = {};
    REQUIRE(server.leases_become(0));
    CHECK_THROWS_AS(client.call<TensorRef>("scale", reference, 2.0), UnknownOrExpired);
}

TEST_CASE_METHOD(Memory, "A result that nobody reads is given up at once", "[client][memory]") {
    client.call("held_ramp", kBig);
    CHECK(server.leases_become(0));
    CHECK_THROWS_AS(client.call<std::string>("held_ramp", kBig), ResultMismatch);
    CHECK(server.leases_become(0));
    {
        auto batch = client.batch();
        const auto read = batch.add<TensorRef>("held_ramp", kBig);
        batch.add<TensorRef>("held_ramp", kBig / 2);
        batch.add<double>("add", 1, 2);
        batch.send();
        const auto kept = read.get();
        CHECK(server.leases() == 2);
    }
    CHECK(server.leases_become(0));
}

TEST_CASE_METHOD(Memory, "An item of a batch that is read twice is one tensor", "[client][memory]") {
    {
        auto batch = client.batch();
        const auto item = batch.add<TensorRef>("ramp", kBig);
        batch.send();
        CHECK(identical(item.get(), x));
        // Were its lease over with the first, others would write to its memory now.
        for (int i = 0; i < 5; ++i)
            CHECK(identical(client.call<TensorRef>("scaled_ramp", kBig, 2.0), ramp(kBig, 2)));
        const TensorRef second = item.get();
        CHECK(identical(second, x));
        CHECK(identical(second, item.get()));
    }
    CHECK(server.leases_become(0));
}

TEST_CASE_METHOD(Memory, "A way that is required is taken or the call fails, saying why", "[client][memory]") {
    const Client by_memory = requiring(client, "shm");
    CHECK(identical(by_memory.call<TensorRef>("scale", x, 2.0), ramp(kBig, 2)));
    CHECK(identical(by_memory.call<TensorRef>("scale", ramp(3), 2.0), ramp(3, 2)));  // small ones too
    const Json before = server.totals()["tensors"];
    CHECK_THROWS_AS(requiring(far, "shm").call<TensorRef>("ramp", 10), TransportNotPossible);
    CHECK_THROWS_WITH(requiring(far, "shm").call<TensorRef>("scale", x, 2.0),
                      ContainsSubstring("an argument") && ContainsSubstring("shm"));
    CHECK_THROWS_AS(requiring(client, "cuda_ipc").call<TensorRef>("ramp", 10), TransportNotPossible);
    CHECK(server.totals()["tensors"] == before);
    CHECK_THROWS_AS(requiring(client, "pigeon").call<TensorRef>("ramp", 10), RpcError);
    CHECK(identical(requiring(far, "body").call<TensorRef>("ramp", 10), ramp(10)));
    CHECK(requiring(far, "shm").call<double>("add", 1, 2) == 3);  // no tensor, no way

    auto batch = requiring(far, "shm").batch();
    const auto item = batch.add<TensorRef>("ramp", 10);
    const auto sum = batch.add<double>("add", 1, 2);
    batch.send();
    CHECK(sum.get() == 3);
    CHECK_THROWS_AS(item.get(), TransportNotPossible);
    const auto task = requiring(far, "shm").submit<TensorRef>("ramp", 10);
    CHECK_THROWS_AS(task.get(), TransportNotPossible);
    AsyncOptions options;
    options.client.url = server.url();
    options.client.local_socket = "none";
    const AsyncClient async(options);
    const auto by_shm_only = async.with({.require = "shm"});
    CHECK_THROWS_AS(by_shm_only.call<TensorRef>("ramp", 10).get(), TransportNotPossible);
    CHECK_THROWS_AS(by_shm_only.submit<TensorRef>("ramp", 10).get(), TransportNotPossible);
}

TEST_CASE_METHOD(Memory,
                 "Items of a batch are arguments of later ones, and what is between them does not leave the daemon",
                 "[client][refs]") {
    auto batch = client.batch();
    const auto factor = batch.add<Json>("echo", 5);
    const auto scaled = batch.add<TensorRef>("scale", named("x", x), named("factor", factor));
    const auto again = batch.add<TensorRef>("scale", named("x", scaled), named("factor", 2.0));
    const auto words = batch.add<Object>("vocabulary.make", std::vector<std::string>{"a"});
    const auto added = batch.add<int>("vocabulary.add", words, "b");
    const auto failed = batch.add("fail", "on purpose");
    const auto never = batch.add<TensorRef>("scale", failed);
    batch.send();
    CHECK(identical(again.get(), ramp(kBig, 10)));
    CHECK(added.get() == 2);
    CHECK(client.call<int>("vocabulary.add", words.get(), "c") == 3);
    try {
        (void)never.get();
        FAIL("a result");
    } catch (const InputFailed& error) {
        CHECK(error.is(ErrorCode::input_failed));
        CHECK_THAT(error.what(), ContainsSubstring("of the batch failed, which this one needs"));
    }

    auto one = client.batch(), other = client.batch();  // an item is no argument of another batch
    const auto item = one.add<double>("add", 1, 2);
    CHECK_THROWS_AS(other.add<double>("add", item, 2), std::logic_error);
    CHECK_THROWS_AS(other.notify("echo", named("value", item)), std::logic_error);
    CHECK_THROWS_AS(client.call<double>("add", item, 2), InvalidParams);
    CHECK_THROWS_AS(client.call<TensorRef>("scale", ref("no such name")), UnknownOrExpired);
}

TEST_CASE_METHOD(Memory, "A lease names the tensor that it holds, for its principal", "[client][refs]") {
    const Client session = client.new_session();
    const int port = server.daemon.port();
    const auto scaled = [&](const Json& argument, double factor, const HeaderList& headers = {}) {
        return call(port, "scale", Json::array({argument, factor}), headers)["$tensor"];
    };
    const Json first = scaled({{"$tensor", {{"dtype", "float32"}, {"data", {1, 2, 3}}}}}, 2,
                              {{"Shared-Tensor-Session", session.session()}, {"Shared-Tensor-Accept", "shm"}});
    REQUIRE(first.contains("lease"));
    const Json by_lease{{"$ref", first["lease"]}};
    CHECK(scaled(by_lease, 10)["data"] == Json({20, 40, 60}));
    const Json task{{"method", "scale"}, {"params", Json::array({by_lease, 5})}};
    const Json result{{"id", call(port, "task.submit", task)["id"]}, {"timeout_ms", 20000}};
    CHECK(call(port, "task.result", result)["$tensor"]["data"] == Json({10, 20, 30}));
    const Json literal{{"$literal", by_lease}};
    CHECK(call(port, "echo", Json::array({literal})) == literal);
}
