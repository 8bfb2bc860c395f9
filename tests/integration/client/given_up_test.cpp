// A call that was given up takes nothing from the calls after it.

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <thread>
#include <vector>

#include "integration/client/example_daemon.hpp"
#include "support/temporary_folder.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kLarge = 1 << 16;  // elements

/// Of a call that sends so many.
void scale(const Client& client, const TensorRef& tensor) {
    CHECK(client.call<TensorRef>("scale", tensor, 2.0).bytes() == tensor.bytes());
}

}  // namespace

TEST_CASE("a session waits for the local channel though the time of another call is over", "[client][given up]") {
    ExampleDaemon server;
    const Client client = server.client();
    Child& child = server.daemon.child();
    child.freeze();
    const std::jthread in_a_hurry([&] {
        try {
            client.with({.timeout = 200ms}).call("add", 1, 2);
        } catch (const DeadlineExceeded&) {
        }
    });
    std::this_thread::sleep_for(50ms);  // so that it connects first; whichever does, what follows holds
    const std::jthread wakes([&] {
        std::this_thread::sleep_for(500ms);
        child.signal(SIGCONT);
    });
    const Client session = client.new_session();
    std::vector<float> numbers(kLarge);
    scale(session.with({.require = "shm"}), TensorRef(numbers.data(), DType::float32, {kLarge}));
}

TEST_CASE("a call that was stopped before it began leaves the local channel to the others", "[client][given up]") {
    const ExampleDaemon server;
    std::vector<float> numbers(kLarge);
    const TensorRef tensor(numbers.data(), DType::float32, {kLarge});
    std::stop_source stop;
    stop.request_stop();
    const std::function<void(const Client&)> stopped[] = {
        [&](const Client& client) { client.batch().add<TensorRef>("scale", tensor); },
        [&](const Client& client) { (void)client.empty_in_shared_memory({kLarge}, DType::float32); },
        [&](const Client& client) { CHECK_THROWS_AS(client.stream("sum_of"), Cancelled); },
    };
    for (const auto& call : stopped) {
        const Client client = server.client();
        call(client.with({.stop = stop.get_token()}));
        scale(client.with({.require = "shm"}), tensor);
    }
}

TEST_CASE("a session that was opened without the local channel sends its tensors as bytes", "[client][given up]") {
    const TemporaryFolder folder;
    const std::string path = folder.file("channel"), aside = folder.file("aside");
    const ExampleDaemon server({"--local-socket", path});
    ClientOptions options{.url = server.url()};
    options.local_socket = path;
    const Client client(options);
    std::filesystem::rename(path, aside);
    const Client session = client.new_session();
    std::filesystem::rename(aside, path);
    TensorRef tensor;
    CHECK(eventually([&] {  // the client connects again after a second
        tensor = client.empty_in_shared_memory({kLarge}, DType::float32);
        try {
            client.with({.require = "shm"}).call<TensorRef>("scale", tensor, 2.0);
        } catch (const TransportNotPossible&) {
            return false;
        }
        return true;
    }));
    scale(session, tensor);
    scale(client.new_session().with({.require = "shm"}), tensor);
}

TEST_CASE("memory whose offers were given up while the server read nothing can be lent afterwards",
          "[client][given up]") {
    ExampleDaemon server;
    const Client client = server.client();
    std::vector<TensorRef> tensors(8);
    for (TensorRef& tensor : tensors)
        tensor = client.empty_in_shared_memory({kLarge}, DType::float32);
    scale(client, tensors[0]);
    Child& child = server.daemon.child();
    child.freeze();
    {
        std::vector<std::jthread> callers;
        for (const TensorRef& tensor : tensors) {
            callers.emplace_back([&client, &tensor] {
                for (int i = 0; i < 60; ++i) {  // more than the socket takes
                    try {
                        client.with({.timeout = 20ms}).call<TensorRef>("scale", tensor, 2.0);
                    } catch (const DeadlineExceeded&) {
                    }
                }
            });
        }
    }
    child.signal(SIGCONT);
    for (const TensorRef& tensor : tensors)
        scale(client.with({.require = "shm"}), tensor);
}

TEST_CASE("who stops the wait for a task is told that it may have run", "[client][given up]") {
    const ExampleDaemon server;
    for (const bool reports : {false, true}) {
        std::stop_source stop;
        const Client client = server.client().with({.stop = stop.get_token()});
        auto task = client.submit<double>("sleep", 30.0);
        if (reports) task.on_progress([](const TaskStatus&) {});
        const std::jthread stopper([&] {
            std::this_thread::sleep_for(200ms);
            stop.request_stop();
        });
        try {
            task.get();
            FAIL("it was not stopped");
        } catch (const Cancelled& cancelled) {
            CHECK(cancelled.may_have_run());
        }
    }
}
