// What a forked child does with the clients of its parent.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "integration/client/example_daemon.hpp"
#include "integration/security/tls_daemon.hpp"
#include "support/forked_child.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

#if defined(__SANITIZE_THREAD__)
/// The sanitizer would end a child that starts threads.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }  // NOLINT(*-reserved-identifier)
#endif

namespace {

/// Answers that only this process can have asked for.
void expect_own_answers(const Client& client, int calls, int who) {
    for (int i = 0; i < calls; ++i) {
        const std::string mine = std::to_string(::getpid()) + '/' + std::to_string(who) + '/' + std::to_string(i);
        const auto answer = client.call<std::string>("echo", mine);
        expect(answer == mine, mine + " was answered by " + answer);
    }
}

json totals(const Client& client) { return json::parse(client.info().json)["totals"]; }

struct Door {
    std::string name;
    std::function<Client()> client;
};

/// A client for each way to a server.
class Doors {
public:
    std::vector<Door> all() {
        const std::string socket = "unix:" + folder_.file("s");
        unix_.emplace(Words{"--unix-socket", socket.substr(5)});
        return {{"TCP", [this] { return far_client(plain_.url()); }},
                {"TCP and shared memory", [this] { return plain_.client(); }},
                {"Unix socket", [socket] { return far_client(socket); }},
                {"TLS", [this] { return tls_.far_client(); }}};
    }

private:
    TemporaryFolder folder_;
    const ExampleDaemon plain_;
    TlsDaemon tls_;
    std::optional<ExampleDaemon> unix_;
};

}  // namespace

TEST_CASE("the end of a child's copies leaves its parent's connections open", "[fork]") {
    Doors doors;
    for (const Door& door : doors.all()) {
        INFO(door.name);
        auto client = std::make_unique<Client>(door.client());
        expect_own_answers(*client, 1, 0);
        CHECK(error_in_child([&] {
                  expect(client->statistics().requests == 0, "a child starts with no requests");
                  client.reset();
              }) == "");
        CHECK(error_in_child([&] {
                  expect_own_answers(*client, 2, 1);
                  client->shutdown();
                  client.reset();
              }) == "");
        expect_own_answers(*client, 1, 2);
        CHECK(client->statistics().connections_opened == 1);
    }
}

TEST_CASE("a child does not keep its parent's connections open", "[fork]") {
    const ExampleDaemon server;
    const Client watcher = far_client(server.url());
    const auto connections = [&] { return totals(watcher)["connections"].get<std::size_t>(); };
    const std::size_t before = connections();
    auto client = std::make_unique<Client>(far_client(server.url()));
    expect_own_answers(*client, 1, 0);
    CHECK(connections() == before + 1);
    const Pipe go;
    ForkedChild child([&] { go.wait(); });
    client.reset();
    CHECK(eventually([&] { return connections() == before; }));
    go.tell();
    CHECK(child.fault() == "");
}

TEST_CASE("a child has a session of its own, and ends only that", "[fork]") {
    const ExampleDaemon server;
    for (const Client& client : {server.client(), far_client(server.url())}) {
        auto session = std::make_unique<Client>(client.new_session());
        const std::string token = session->session();
        CHECK(session->call<double>("add", 1, 2) == 3);
        CHECK(error_in_child([&] { session.reset(); }) == "");
        CHECK(error_in_child([&] {
                  expect(session->call<double>("add", 2, 2) == 4, "it calls in its own session");
                  const std::string own = session->session();
                  expect(own != token, "it is another one");
                  expect(session->with(session->options()).session() == own, "with() keeps it");
                  CallOptions stolen;
                  stolen.session = own;
                  session.reset();
                  try {
                      client.with(stolen).call<double>("add", 1, 2);
                  } catch (const UnknownOrExpired&) {
                      return;
                  }
                  expect(false, "it ended with its last copy");
              }) == "");
        CHECK(session->session() == token);
        CHECK(session->call<double>("add", 3, 2) == 5);
    }
}

TEST_CASE("a child's AsyncClient has threads of its own", "[fork]") {
    const ExampleDaemon server;
    auto client = std::make_unique<AsyncClient>(server.url());
    CHECK(client->call<double>("add", 1, 2).get() == 3);
    auto task = client->submit<double>("sleep", 0.5);
    std::vector<std::future<double>> in_flight;
    for (int i = 0; i < 40; ++i)
        in_flight.push_back(client->call<double>("sleep", 0.02));
    std::vector<ForkedChild> children;
    for (int i = 0; i < 4; ++i)
        children.emplace_back([&, i] {
            if (i > 0) {
                for (int call = 0; call < 50; ++call)
                    expect(client->call<double>("add", i, call).get() == i + call, "its calls are answered");
                expect(client->submit<double>("sleep", 0.01).get() > 0, "its tasks run");
            }
            try {
                task.cancel();
                expect(false, "a task of the parent is not the child's to cancel");
            } catch (const TransportFailure& failure) {
                expect(std::string(failure.what()).find("forked from") != std::string::npos, failure.what());
            }
            client.reset();
        });
    for (ForkedChild& child : children)
        CHECK(child.fault() == "");
    for (auto& result : in_flight)
        CHECK(result.get() > 0);
    CHECK(task.get() > 0);
}

TEST_CASE("a stream stays its parent's; a child may open another one", "[fork]") {
    const ExampleDaemon server;
    const Client client = server.client();
    std::optional<StreamCall<double>> call(client.stream<double>("running_sum"));
    std::optional<Writer<double>> numbers(call->writer<double>());
    std::optional<Reader<double>> sums(call->reader<double>());
    REQUIRE(numbers->write(1));
    REQUIRE(sums->next() == 1.0);
    const auto is_rejected = [](const auto& use) {
        try {
            use();
        } catch (const TransportFailure& failure) {
            return std::string(failure.what()).find("forked from") != std::string::npos;
        }
        return false;
    };
    CHECK(error_in_child([&] {
              expect(is_rejected([&] { sums->next(); }), "the parent's Reader is rejected");
              expect(is_rejected([&] { numbers->write(5); }), "the parent's Writer is rejected");
              expect(is_rejected([&] { call->result(); }), "the parent's result is rejected");
              auto own = client.stream<std::int64_t>("count", named("up_to", 100));
              auto mine = own.reader<std::int64_t>();
              std::int64_t seen = 0;
              for (const std::int64_t number : mine)
                  expect(number == ++seen, "numbers come in order");
              expect(own.result() == 100, "its own stream goes to its end");
              sums.reset();
              numbers.reset();
              call.reset();
          }) == "");
    REQUIRE(numbers->write(2));
    REQUIRE(sums->next() == 3.0);
    numbers->end();
    CHECK_FALSE(sums->next());
    CHECK(call->result() == 3);
}

TEST_CASE("a child reads its parent's results, and gives none of them back", "[fork]") {
    const ExampleDaemon server;
    const Client client = server.client(), watcher = far_client(server.url());
    const auto leases = [&] { return totals(watcher)["shared_memory"]["leases"]; };
    auto lent = std::make_unique<at::Tensor>(client.call<at::Tensor>("ramp", 1 << 16));
    auto as_bytes = std::make_unique<at::Tensor>(watcher.call<at::Tensor>("ramp", 1 << 10));
    auto filled = std::make_unique<at::Tensor>(client.empty_in_shared_memory({1 << 16}, at::kFloat));
    filled->fill_(1);
    std::vector<ForkedChild> children;
    for (int i = 0; i < 4; ++i)
        children.emplace_back([&, i] {
            at::set_num_threads(1);
            expect((*lent)[100].item<float>() == 100, "it reads what its parent got");
            expect((*as_bytes)[100].item<float>() == 100, "also as bytes");
            auto scaled = client.call<at::Tensor>("scale", *filled, 3.0);
            expect(scaled[5].item<float>() == 3, "its parent's memory is an argument");
            scaled = client.call<at::Tensor>("scale", *lent, 2.0);
            expect(scaled[100].item<float>() == 200, "its parent's result is an argument");
            lent.reset();
            as_bytes.reset();
            filled.reset();
            for (int round = 0; round < 20; ++round) {
                at::Tensor own = client.empty_in_shared_memory({1 << 16}, at::kFloat);
                own.fill_(i * 100 + round);
                const auto result = client.call<at::Tensor>("scale", own, 2.0);
                expect(at::equal(result, at::full({1 << 16}, 2.0F * static_cast<float>(i * 100 + round))), "its own");
            }
        });
    for (ForkedChild& child : children)
        CHECK(child.fault() == "");
    CHECK(eventually([&] { return leases() == 1; }));
    CHECK((*lent)[100].item<float>() == 100);
    CHECK(at::equal(*filled, at::full({1 << 16}, 1.0F)));
    CHECK(at::equal(client.call<at::Tensor>("scale", *filled, 3.0), at::full({1 << 16}, 3.0F)));
    lent.reset();
    CHECK(eventually([&] { return leases() == 0; }));
}

TEST_CASE("a child's copies of its parent's tensors stay as they are when the parent lets go of its own", "[fork]") {
    constexpr std::int64_t kElements = 1 << 16;
    const ExampleDaemon server;
    const Client client = server.client();
    at::Tensor large = client.call<at::Tensor>("ramp", kElements), small = client.call<at::Tensor>("ramp", 100);
    at::Tensor filled = client.empty_in_shared_memory({kElements}, at::kFloat);
    filled.fill_(1);
    CHECK(client.call<at::Tensor>("scale", filled, 3.0)[5].item<float>() == 3);
    Pipe let_go, looked;
    ForkedChild child([&] {
        at::set_num_threads(1);
        let_go.wait();
        expect(at::equal(large, at::arange(kElements, at::kFloat)), "a large result is what it was");
        expect(at::equal(small, at::arange(100, at::kFloat)), "a small result is what it was");
        expect(at::equal(filled, at::full({kElements}, 1.0F)), "shared memory is what it was");
        filled.fill_(666);
        looked.tell();
    });
    for (at::Tensor* const one : {&large, &small, &filled})
        one->reset();
    std::vector<at::Tensor> kept;
    for (int round = 0; round < 20; ++round) {  // a lease is given back a moment later
        kept.push_back(client.empty_in_shared_memory({kElements}, at::kFloat));
        kept.back().fill_(7);
        kept.push_back(client.call<at::Tensor>("scale", kept.back(), 1.0));
        for (int i = 0; i < 20; ++i)
            kept.push_back(client.call<at::Tensor>("scale", at::full({100}, 7.0F), 1.0));
        std::this_thread::sleep_for(5ms);
    }
    let_go.tell();
    looked.wait();
    CHECK(child.fault() == "");
    for (const at::Tensor& one : kept)
        REQUIRE(at::equal(one, at::full(one.sizes(), 7.0F)));
}

TEST_CASE("a child reads its parent's result when the parent is gone", "[fork]") {
    constexpr std::int64_t kElements = 1 << 16;
    const ExampleDaemon server;
    const Client other = server.client();
    Pipe reused, looked;
    CHECK(error_in_child([&] {
              const at::Tensor result = server.client().call<at::Tensor>("ramp", kElements);
              if (::fork() != 0) return;  // ends here
              ::alarm(120);
              at::set_num_threads(1);
              reused.wait();
              looked.tell(at::equal(result, at::arange(kElements, at::kFloat)) ? 'y' : 'n');
              ::_exit(0);
          }) == "");
    CHECK(eventually([&] { return totals(other)["shared_memory"]["leases"] == 0; }));
    std::vector<at::Tensor> kept;
    for (int i = 0; i < 20; ++i)
        kept.push_back(other.call<at::Tensor>("scale", at::full({kElements}, 7.0F), 1.0));
    reused.tell();
    CHECK(looked.wait() == 'y');
}

TEST_CASE("a child publishes and reads named tensors, in parts and in shared memory", "[fork]") {
    const ExampleDaemon server;
    for (const Client& client : {server.client(), far_client(server.url())}) {
        const NamedTensors names(client);
        names.put("x", at::arange(1 << 16, at::kFloat));
        auto held = std::make_unique<NamedTensor>(names.get("x"));
        CHECK(error_in_child([&] {
                  at::set_num_threads(1);
                  expect(held->tensor().as<at::Tensor>()[7].item<float>() == 7, "it reads what its parent got");
                  held.reset();
                  expect(names.get("x").tensor().as<at::Tensor>()[8].item<float>() == 8, "it gets");
                  expect(names.pull("x").tensor().as<at::Tensor>()[9].item<float>() == 9, "it pulls");
                  names.put("child", at::full({1 << 16}, 4.0F));
                  names.push("pushed", at::full({1 << 16}, 5.0F));
              }) == "");
        CHECK(held->tensor().as<at::Tensor>()[7].item<float>() == 7);
        CHECK(at::equal(names.get("child").tensor(), at::full({1 << 16}, 4.0F)));
        CHECK(at::equal(names.pull("pushed").tensor(), at::full({1 << 16}, 5.0F)));
    }
}

TEST_CASE("a child's copy of an object's handle releases nothing", "[fork]") {
    const ExampleDaemon server;
    for (const Client& client : {server.client(), far_client(server.url())}) {
        const std::vector<std::string> words{"one", "two"};
        auto object = std::make_unique<Object>(client.call<Object>("vocabulary.make", words));
        CHECK(error_in_child([&] {
                  auto own = std::make_unique<Object>(client.call<Object>("vocabulary.make", words));
                  expect(client.call<std::vector<int>>("vocabulary.numbers", *own, words) == std::vector{0, 1},
                         "its own object is there");
                  object.reset();
                  own.reset();
                  expect(eventually([&] { return totals(client)["objects"]["handles"] == 1; }), "its own is released");
              }) == "");
        CHECK(client.call<std::vector<int>>("vocabulary.numbers", *object, words) == std::vector{0, 1});
        CHECK(eventually([&] { return totals(client)["objects"]["handles"] == 1; }));
        object.reset();
        CHECK(eventually([&] { return totals(client)["objects"]["handles"] == 0; }));
    }
}

TEST_CASE("a child waits for its parent's task, and uses no batch of its parent's", "[fork]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const auto task = client.submit<double>("sleep", 0.3);
    auto batch = client.batch();
    const auto sum = batch.add<double>("add", 1, 2);
    CHECK(error_in_child([&] {
              expect(task.get() > 0, "the task's result is there");
              auto own = client.batch();
              const auto mine = own.add<double>("add", 2, 2);
              own.send();
              expect(mine.get() == 4, "its own batch is answered");
              try {
                  batch.send();
              } catch (const TransportFailure&) {
                  return;
              }
              expect(false, "the parent's batch is rejected");
          }) == "");
    batch.send();
    CHECK(sum.get() == 3);
    CHECK(task.get() > 0);
}

TEST_CASE("a client that was shut down stays so in a child", "[fork]") {
    const ExampleDaemon server;
    const Client client = server.client();
    client.shutdown();
    CHECK(error_in_child([&] {
              try {
                  client.call<double>("add", 1, 2);
              } catch (const TransportFailure&) {
                  return;
              }
              expect(false, "its calls fail");
          }) == "");
}
