// The same four calls one after another, with futures, with callbacks, and as a task that reports its progress.
//
//     shared-tensor-server --load libexample_plugin.so &
//     async_vs_sync

#include <chrono>
#include <cstdio>
#include <exception>
#include <future>
#include <latch>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/client.hpp>

namespace {

using namespace shared_tensor;  // NOLINT(google-build-using-namespace): an example
using Clock = std::chrono::steady_clock;

constexpr int kCalls = 4;
constexpr double kSeconds = 0.3;

template <class Work>
double seconds(Work work) {
    const auto start = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void one_after_another(const Client& client) {
    for (int i = 0; i < kCalls; ++i)
        client.call<double>("sleep", kSeconds);
}

void by_futures(const AsyncClient& client) {
    std::vector<std::future<double>> answers;
    for (int i = 0; i < kCalls; ++i)
        answers.push_back(client.call<double>("sleep", kSeconds));
    for (auto& answer : answers)
        answer.get();
}

void by_callbacks(const AsyncClient& client) {
    std::latch left(kCalls);
    for (int i = 0; i < kCalls; ++i)
        client.call_then<double>([&left](const std::future<double>&) { left.count_down(); }, "sleep", kSeconds);
    left.wait();
}

/// A task runs in the server even if no client waits; its result is kept until a client asks for it.
void as_a_task(const Client& client) {
    Task<double> task = client.submit<double>("sleep", 2 * kSeconds);
    task.on_progress([](const TaskStatus& status) {
        std::printf("task: %s %3.0f %%\n", to_string(status.state), 100 * status.fraction.value_or(0));
    });
    const bool is_whole = task.get() >= 2 * kSeconds;
    std::printf("task: slept for at least %.1f s: %s\n", 2 * kSeconds, is_whole ? "yes" : "no");

    Task<double> unwanted = client.submit<double>("sleep", 3600.0);
    std::printf("task: %s\n", to_string(unwanted.cancel().state));
}

}  // namespace

int main() {
    try {
        const Client client;
        const AsyncClient async;
        const double sync_time = seconds([&] { one_after_another(client); });
        const double future_time = seconds([&] { by_futures(async); });
        const double callback_time = seconds([&] { by_callbacks(async); });
        std::printf("%d calls of %.1f s: %.2f s one after another, %.2f s by futures, %.2f s by callbacks\n", kCalls,
                    kSeconds, sync_time, future_time, callback_time);
        as_a_task(client);
        if (future_time > 0.8 * sync_time) throw std::runtime_error("calls in flight together took as long as in turn");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "async_vs_sync: %s\n", error.what());
        return 1;
    }
}
