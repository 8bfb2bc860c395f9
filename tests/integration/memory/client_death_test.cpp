#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <thread>

#include <shared_tensor/json.hpp>
#include <shared_tensor/torch.hpp>

#include "integration/client/example_daemon.hpp"
#include "support/descriptors.hpp"
#include "support/role.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Json = nlohmann::json;

namespace {

/// Asked by a client that shares no memory: what is there is the others'.
class Watch {
public:
    explicit Watch(const ExampleDaemon& server) : client_(far_client(server.url())) {}

    Json totals() const { return Json::parse(client_.info().json)["totals"]; }
    Json memory() const { return totals()["shared_memory"]; }
    bool becomes_empty() const {
        return eventually([this] {
            const Json now = memory();
            return now["leases"] == 0 && now["leased_bytes"] == 0 && now["segments"] == 0;
        });
    }

private:
    const Client client_;
};

Words url_of(const ExampleDaemon& server) { return {"TEST_URL=" + server.url()}; }

/// What a number is once it stays the same for a while: what has ended is taken away some moments later.
template <class Number>
std::size_t settled(Number number) {
    std::size_t seen = number();
    for (int same = 0; same < 20; ++same) {
        std::this_thread::sleep_for(std::chrono::milliseconds(25));
        const std::size_t now = number();
        if (now != seen) same = 0;
        seen = now;
    }
    return seen;
}

}  // namespace

TEST_CASE("The leases of a client that was killed end at once, all thousand of them", "[memory][death]") {
    allow_many_descriptors();
    const ExampleDaemon server;
    const Watch watch(server);
    Role client("hold a thousand results", url_of(server));
    REQUIRE(client.ready());
    CHECK(watch.memory()["leases"] == 1000);
    client.kill();
    CHECK(watch.becomes_empty());
    // Its mappings may live on in a child of its own: nobody else gets that memory.
    CHECK(watch.memory()["idle_segments"] == 0);
}

TEST_CASE("A client that is killed in the middle of a call harms nobody, though its argument is in use",
          "[memory][death]") {
    const ExampleDaemon server;
    const Watch watch(server);
    Role client("call with a large argument", url_of(server));
    REQUIRE(client.ready());
    REQUIRE(eventually([&] { return watch.totals()["workers"]["busy"] == 1; }));
    client.kill();
    CHECK(eventually([&] { return watch.totals()["workers"]["busy"] == 0; }));
    CHECK(watch.becomes_empty());
    CHECK(server.client().call<double>("slow_sum", at::ones({1 << 20}), 0.0) == 1 << 20);
}

TEST_CASE("The task of a client that was killed while it waited goes on, with its argument", "[memory][death]") {
    const ExampleDaemon server;
    const Watch watch(server);
    Role client("wait for a task", url_of(server));
    REQUIRE(client.ready());
    client.kill();
    const Client other = server.client();
    const auto tasks = other.call<Json>("task.list")["tasks"];
    REQUIRE(tasks.size() == 1);
    CHECK(other.task<double>(tasks[0]["id"]).get() == 1 << 22);
    CHECK(watch.becomes_empty());
}

// What is counted has to come back to nothing.
TEST_CASE("Eight processes take and release ten thousand results each, and others are killed meanwhile",
          "[memory][death][soak]") {
    ExampleDaemon server;
    const Watch watch(server);
    const auto kill_one = [&] {
        Role dying("call and let go until killed", url_of(server));
        REQUIRE(dying.ready());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        dying.kill();
    };
    const auto descriptors = [&] { return Descriptors(server.daemon.child().pid()); };
    // Only what the daemon keeps warm of its own may be left, and its number differs from run to run.
    const auto only_warm = [&] { return descriptors().memory == watch.memory()["idle_segments"]; };
    kill_one();
    REQUIRE(watch.becomes_empty());
    REQUIRE(eventually(only_warm));
    const std::size_t others = settled([&] { return descriptors().others; });
    {
        std::vector<std::unique_ptr<Role>> clients;
        for (int i = 0; i < 8; ++i)
            clients.push_back(std::make_unique<Role>("ten thousand results come and go", url_of(server)));
        const auto all_done = [&] {
            return std::all_of(clients.begin(), clients.end(),
                               [](const auto& one) { return one->child().has_ended(); });
        };
        do {
            kill_one();
        } while (!all_done());
        for (const auto& one : clients) {
            INFO(one->out());
            CHECK(one->child().wait() == 0);
        }
    }
    CHECK(watch.becomes_empty());
    CHECK(watch.memory()["leases_granted"] >= 80'000);
    CHECK(eventually(only_warm));
    CHECK(eventually([&] { return descriptors().others == others; }));
    const at::Tensor x = at::arange(1 << 14, at::kFloat);
    CHECK(at::equal(server.client().call<at::Tensor>("scale", x, 2.0), at::mul(x, 2)));
}
