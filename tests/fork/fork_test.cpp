// What a forked child does with the clients of its parent.

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/client.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/tensors.hpp>

#include "integration/client/example_daemon.hpp"
#include "integration/security/tls_daemon.hpp"
#include "support/forked_child.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

#if defined(__SANITIZE_THREAD__)
/// The sanitizer would end a child that starts threads.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }  // NOLINT(*-reserved-identifier)
#endif

namespace {

constexpr std::int64_t kCount = 1 << 16;

/// Answers that only this process can have asked for.
void expect_own_answers(const Client& client, int calls, int who) {
    for (int i = 0; i < calls; ++i) {
        const std::string mine = std::to_string(::getpid()) + '/' + std::to_string(who) + '/' + std::to_string(i);
        const auto answer = client.call<std::string>("echo", mine);
        expect(answer == mine, mine + " was answered by " + answer);
    }
}

TensorRef fill(const TensorRef& tensor, float value) {
    std::fill_n(reinterpret_cast<float*>(tensor.mutable_data()), tensor.elements(), value);
    return tensor;
}
TensorRef filled(const Client& client, float value) {
    return fill(client.empty_in_shared_memory({kCount}, DType::float32), value);
}
bool is_all(const TensorRef& tensor, float value) {
    const auto numbers = elements_of<float>(tensor);
    return numbers == std::vector(numbers.size(), value);
}
bool is_ramp(const TensorRef& tensor, std::int64_t count = kCount) { return identical(tensor, arange<float>({count})); }

/// A daemon; a client in shared memory, and one that gets bytes.
struct Both {
    std::vector<Client> clients() const { return {near, far}; }
    bool objects_become(int count) const {
        return eventually([&] { return server.totals()["objects"]["handles"] == count; });
    }

    const ExampleDaemon server;
    const Client near = server.client(), far = server.far();
};

}  // namespace

TEST_CASE("the end of a child's copies leaves its parent's connections open", "[fork]") {
    const TemporaryFolder folder;
    const std::string socket = "unix:" + folder.file("s");
    const ExampleDaemon plain, by_file({"--unix-socket", socket.substr(5)});
    TlsDaemon tls;
    const std::pair<const char*, std::function<Client()>> doors[] = {
        {"TCP", [&] { return plain.far(); }},
        {"TCP and shared memory", [&] { return plain.client(); }},
        {"Unix socket", [&] { return far_client(socket); }},
        {"TLS", [&] { return tls.far_client(); }},
    };
    for (const auto& [name, open] : doors) {
        INFO(name);
        auto client = std::make_unique<Client>(open());
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

TEST_CASE("a child does not keep its parent's connections open, nor does it open what was shut down", "[fork]") {
    const ExampleDaemon server;
    const auto connections = [&] { return server.totals()["connections"].get<std::size_t>(); };
    const std::size_t before = connections();
    auto client = std::make_unique<Client>(server.far());
    expect_own_answers(*client, 1, 0);
    CHECK(eventually([&] { return connections() == before + 1; }));
    const Pipe go;
    ForkedChild child([&] { go.wait(); });
    client->shutdown();
    CHECK(error_in_child([&] {
              expect_throws<TransportFailure>([&] { client->call<double>("add", 1, 2); }, "its calls fail");
          }) == "");
    client.reset();
    CHECK(eventually([&] { return connections() == before; }));
    go.tell();
    CHECK(child.fault() == "");
}

TEST_CASE("a child has a session of its own, and ends only that", "[fork]") {
    const Both both;
    for (const Client& client : both.clients()) {
        auto session = std::make_unique<Client>(client.new_session());
        const std::string token = session->session();
        CHECK(session->call<double>("add", 1, 2) == 3);
        CHECK(error_in_child([&] { session.reset(); }) == "");
        CHECK(error_in_child([&] {
                  expect(session->call<double>("add", 2, 2) == 4, "it calls in its own session");
                  CallOptions own;
                  own.session = session->session();
                  expect(own.session != token, "it is another one");
                  expect(session->with(session->options()).session() == own.session, "with() keeps it");
                  session.reset();
                  expect_throws<UnknownOrExpired>([&] { client.with(own).call<double>("add", 1, 2); },
                                                  "it ended with its last copy");
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
            for (int call = 0; i > 0 && call < 50; ++call)
                expect(client->call<double>("add", i, call).get() == i + call, "its calls are answered");
            if (i > 0) expect(client->submit<double>("sleep", 0.01).get() > 0, "its tasks run");
            expect_throws<TransportFailure>([&] { task.cancel(); }, "a task of the parent is not its own",
                                            "forked from");
            client.reset();
        });
    for (ForkedChild& child : children)
        CHECK(child.fault() == "");
    for (auto& result : in_flight)
        CHECK(result.get() > 0);
    CHECK(task.get() > 0);
}

TEST_CASE("a stream and a batch stay their parent's; a child may have its own, and wait for its parent's task",
          "[fork]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const auto task = client.submit<double>("sleep", 0.3);
    auto batch = client.batch();
    const auto sum = batch.add<double>("add", 1, 2);
    std::optional<StreamCall<double>> call(client.stream<double>("running_sum"));
    std::optional<Writer<double>> numbers(call->writer<double>());
    std::optional<Reader<double>> sums(call->reader<double>());
    REQUIRE(numbers->write(1));
    REQUIRE(sums->next() == 1.0);
    CHECK(error_in_child([&] {
              expect_throws<TransportFailure>([&] { sums->next(); }, "the Reader is rejected", "forked from");
              expect_throws<TransportFailure>([&] { numbers->write(5); }, "the Writer is rejected", "forked from");
              expect_throws<TransportFailure>([&] { call->result(); }, "the result is rejected", "forked from");
              expect_throws<TransportFailure>([&] { batch.send(); }, "the batch is rejected");
              auto own = client.stream<std::int64_t>("count", named("up_to", 100));
              auto mine = own.reader<std::int64_t>();
              std::int64_t seen = 0;
              for (const std::int64_t number : mine)
                  expect(number == ++seen, "numbers come in order");
              expect(own.result() == 100, "its own stream goes to its end");
              auto own_batch = client.batch();
              const auto own_sum = own_batch.add<double>("add", 2, 2);
              own_batch.send();
              expect(own_sum.get() == 4, "its own batch is answered");
              expect(task.get() > 0, "the task's result is there");
              sums.reset();
              numbers.reset();
              call.reset();
          }) == "");
    REQUIRE(numbers->write(2));
    REQUIRE(sums->next() == 3.0);
    numbers->end();
    CHECK_FALSE(sums->next());
    CHECK(call->result() == 3);
    batch.send();
    CHECK(sum.get() == 3);
    CHECK(task.get() > 0);
}

TEST_CASE("a child reads its parent's results, and gives none of them back", "[fork]") {
    const Both both;
    const Client& client = both.near;
    TensorRef lent = client.call<TensorRef>("ramp", kCount), as_bytes = both.far.call<TensorRef>("ramp", 1 << 10);
    TensorRef mine = filled(client, 1);
    std::vector<ForkedChild> children;
    for (int i = 0; i < 4; ++i)
        children.emplace_back([&, i] {
            expect(is_ramp(lent), "it reads what its parent got");
            expect(is_ramp(as_bytes, 1 << 10), "also as bytes");
            expect(is_all(client.call<TensorRef>("scale", mine, 3.0), 3), "its parent's memory is an argument");
            const auto scaled = elements_of<float>(client.call<TensorRef>("scale", lent, 2.0));
            expect(scaled[100] == 200, "its parent's result is an argument");
            lent = as_bytes = mine = {};
            for (int round = 0; round < 20; ++round) {
                const auto own = static_cast<float>(i * 100 + round);
                expect(is_all(client.call<TensorRef>("scale", filled(client, own), 2.0), 2 * own), "its own");
            }
        });
    for (ForkedChild& child : children)
        CHECK(child.fault() == "");
    CHECK(both.server.leases_become(1));
    CHECK(is_ramp(lent));
    CHECK(is_all(mine, 1));
    CHECK(is_all(client.call<TensorRef>("scale", mine, 3.0), 3));
    lent = {};
    CHECK(both.server.leases_become(0));
}

TEST_CASE("a child's copies of its parent's tensors stay as they are when the parent lets go of its own", "[fork]") {
    const ExampleDaemon server;
    const Client client = server.client();
    TensorRef large = client.call<TensorRef>("ramp", kCount), small = client.call<TensorRef>("ramp", 100);
    TensorRef mine = filled(client, 1);
    CHECK(is_all(client.call<TensorRef>("scale", mine, 3.0), 3));
    Pipe let_go, looked;
    ForkedChild child([&] {
        let_go.wait();
        expect(is_ramp(large), "a large result is what it was");
        expect(is_ramp(small, 100), "a small result is what it was");
        expect(is_all(mine, 1), "shared memory is what it was");
        fill(mine, 666);
        looked.tell();
    });
    large = small = mine = {};
    std::vector<TensorRef> kept;
    for (int round = 0; round < 20; ++round) {  // a lease is given back a moment later
        kept.push_back(filled(client, 7));
        kept.push_back(client.call<TensorRef>("scale", kept.back(), 1.0));
        for (int i = 0; i < 20; ++i)
            kept.push_back(client.call<TensorRef>("scale", fill(zeros(DType::float32, {100}), 7), 1.0));
        std::this_thread::sleep_for(5ms);
    }
    let_go.tell();
    looked.wait();
    CHECK(child.fault() == "");
    for (const TensorRef& one : kept)
        REQUIRE(is_all(one, 7));
}

TEST_CASE("a child reads its parent's result when the parent is gone", "[fork]") {
    const ExampleDaemon server;
    const Client other = server.client();
    Pipe reused, looked;
    CHECK(error_in_child([&] {
              const TensorRef result = server.client().call<TensorRef>("ramp", kCount);
              if (::fork() != 0) return;  // ends here
              ::alarm(120);
              reused.wait();
              looked.tell(is_ramp(result) ? 'y' : 'n');
              ::_exit(0);
          }) == "");
    CHECK(server.leases_become(0));
    std::vector<TensorRef> kept;
    for (int i = 0; i < 20; ++i)
        kept.push_back(other.call<TensorRef>("scale", filled(other, 7), 1.0));
    reused.tell();
    CHECK(looked.wait() == 'y');
}

TEST_CASE("a child publishes and reads named tensors, in parts and in shared memory", "[fork]") {
    const Both both;
    for (const Client& client : both.clients()) {
        const NamedTensors names(client);
        names.put("x", arange<float>({kCount}));
        auto held = std::make_unique<NamedTensor>(names.get("x"));
        CHECK(error_in_child([&] {
                  expect(is_ramp(held->tensor()), "it reads what its parent got");
                  held.reset();
                  expect(is_ramp(names.get("x").tensor()), "it gets");
                  expect(is_ramp(names.pull("x").tensor()), "it pulls");
                  names.put("child", filled(client, 4));
                  names.push("pushed", filled(client, 5));
              }) == "");
        CHECK(is_ramp(held->tensor()));
        CHECK(is_all(names.get("child").tensor(), 4));
        CHECK(is_all(names.pull("pushed").tensor(), 5));
    }
}

TEST_CASE("a child's copy of an object's handle releases nothing", "[fork]") {
    const Both both;
    const std::vector<std::string> words{"one", "two"};
    const auto knows = [&](const Client& client, const Object& object) {
        return client.call<std::vector<int>>("vocabulary.numbers", object, words) == std::vector{0, 1};
    };
    for (const Client& client : both.clients()) {
        auto object = std::make_unique<Object>(client.call<Object>("vocabulary.make", words));
        CHECK(error_in_child([&] {
                  auto own = std::make_unique<Object>(client.call<Object>("vocabulary.make", words));
                  expect(knows(client, *own), "its own object is there");
                  object.reset();
                  own.reset();
                  expect(both.objects_become(1), "its own is released");
              }) == "");
        CHECK(knows(client, *object));
        CHECK(both.objects_become(1));
        object.reset();
        CHECK(both.objects_become(0));
    }
}
