// Parent and children call through the same clients at once, from several threads each. Every answer is checked.
// SHARED_TENSOR_STRESS_SECONDS says how long; a few seconds without it.

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <string>
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

namespace {

constexpr std::int64_t kElements = 20'000;  // 80 KB: in shared memory
constexpr std::size_t kChildren = 4;        // at once
constexpr int kRounds = 6;                  // of each kind of work in a child

std::chrono::seconds duration() {
    const char* text = std::getenv("SHARED_TENSOR_STRESS_SECONDS");
    return std::chrono::seconds(text != nullptr ? std::max(1, std::atoi(text)) : 5);
}

/// Everything that parent and children use together.
struct Clients {
    Client near, far, tls, session;
    AsyncClient& async;
};

/// A number that no other thread or process asks about.
double own_number() {
    static std::atomic<int> last{0};
    return static_cast<double>(::getpid()) * 1'000'000 + ++last;
}

void add(const Client& client) {
    const double mine = own_number();
    expect(client.call<double>("add", mine, 1) == mine + 1, "a sum is that of its own numbers");
    const std::string text = std::to_string(own_number());
    expect(client.call<std::string>("echo", text) == text, "an echo is that of its own text");
}

void expect_all(const TensorRef& tensor, float value) {
    const auto numbers = elements_of<float>(tensor);
    expect(numbers == std::vector(kElements, value),
           "a tensor has its own elements, not " + std::to_string(numbers.at(0)) + " for " + std::to_string(value));
}

/// In memory that is shared, if the client shares any.
TensorRef stress_filled(const Client& client, float value) {
    TensorRef made = client.empty_in_shared_memory({kElements}, DType::float32);
    std::fill_n(reinterpret_cast<float*>(made.mutable_data()), kElements, value);
    return made;
}

void scale(const Client& client) {
    const auto value = static_cast<float>(own_number());
    const TensorRef mine = stress_filled(client, value);
    const auto result = client.call<TensorRef>("scale", mine, 2.0);
    const auto again = client.call<TensorRef>("scale", result, 0.5);
    expect_all(result, 2 * value);
    expect_all(again, value);
    expect_all(mine, value);
}

void hold_session(const Client& client) {
    const Client session = client.new_session();
    add(session);
    const Client copy = session.with({});
    add(copy);
}

void call_at_once(AsyncClient& client) {
    std::array<std::future<double>, 4> results;
    std::array<double, 4> numbers{};
    for (std::size_t i = 0; i < results.size(); ++i) {
        numbers[i] = own_number();
        results[i] = client.call<double>("add", numbers[i], 2);
    }
    for (std::size_t i = 0; i < results.size(); ++i)
        expect(results[i].get() == numbers[i] + 2, "an asynchronous sum is that of its own numbers");
}

void stream(const Client& client) {
    auto call = client.stream<double>("running_sum");
    auto numbers = call.writer<double>();
    auto sums = call.reader<double>();
    const double start = own_number();
    double sum = 0;
    for (int i = 0; i < 5; ++i) {
        sum += start + i;
        expect(numbers.write(start + i), "a stream takes numbers");
        expect(sums.next() == sum, "a stream brings its own sums");
    }
    numbers.end();
    expect(call.result() == sum, "a stream ends with its own sum");
}

void publish(const Client& client) {
    const NamedTensors names(client);
    const std::string name = "n" + std::to_string(static_cast<std::int64_t>(own_number()));
    const auto value = static_cast<float>(own_number());
    names.put(name, stress_filled(client, value));
    expect_all(names.get(name).tensor(), value);
    expect(names.remove(name), "a name is there");
}

void keep_object(const Client& client) {
    const std::vector<std::string> words{"a", std::to_string(own_number())};
    const auto object = client.call<Object>("vocabulary.make", words);
    expect(client.call<std::vector<int>>("vocabulary.numbers", object, words) == std::vector{0, 1},
           "an object is its own");
}

/// Each kind of work once.
void work(const Clients& clients) {
    for (const Client* client : {&clients.near, &clients.far, &clients.tls, &clients.session})
        add(*client);
    for (const Client* client : {&clients.near, &clients.far, &clients.session})
        scale(*client);
    for (const Client* client : {&clients.near, &clients.far})
        hold_session(*client);
    call_at_once(clients.async);
    stream(clients.near);
    publish(clients.near);
    keep_object(clients.near);
}

/// `rounds` of work on each of two threads. The first thing that was wrong is thrown.
void work_on_threads(const Clients& clients, const std::function<bool()>& goes_on) {
    std::atomic<bool> failed{false};
    std::string first;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] {
            try {
                while (!failed && goes_on())
                    work(clients);
            } catch (const std::exception& error) {
                if (!failed.exchange(true)) first = error.what();
            }
        });
    threads.clear();
    expect(!failed, first);
}

}  // namespace

TEST_CASE("parents and children of many threads get their own answers", "[fork][stress]") {
    const ExampleDaemon server({"--max-sessions", "1000"});
    TlsDaemon tls;
    AsyncClient async(server.url());
    const Client near = server.client();
    const Clients clients{near, far_client(server.url()), tls.far_client(), near.new_session(), async};
    const TensorRef lent = near.call<TensorRef>("ramp", kElements);
    const auto is_as_it_was = [&] { return identical(lent, arange<float>({kElements})); };

    const auto end = std::chrono::steady_clock::now() + duration();
    std::atomic<std::uint64_t> rounds{0};
    std::string error_of_parent;
    std::jthread parent([&](const std::stop_token& stop) {
        try {
            work_on_threads(clients, [&] { return ++rounds, !stop.stop_requested(); });
        } catch (const std::exception& error) {
            error_of_parent = error.what();
        }
    });
    std::deque<ForkedChild> children;
    std::uint64_t forked = 0;
    const auto reap = [&] {
        const std::string fault = children.front().fault();
        children.pop_front();
        INFO("child " << forked);
        REQUIRE(fault == "");
    };
    while (std::chrono::steady_clock::now() < end) {
        if (children.size() == kChildren) reap();
        ++forked;
        children.emplace_back([&] {
            expect(is_as_it_was(), "a child reads what its parent got");
            std::atomic<int> left{2 * kRounds};
            work_on_threads(clients, [&] { return --left >= 0; });
        });
    }
    while (!children.empty())
        reap();
    parent.request_stop();
    parent.join();
    CHECK(error_of_parent == "");
    CHECK(is_as_it_was());
    WARN(forked << " children, " << rounds << " rounds of work in the parent");
}
