#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "groups.hpp"
#include "runtime/functions/call_stats.hpp"

namespace bench {

namespace {

namespace runtime = shared_tensor::runtime;

constexpr double kMostMicros = 0.3;

/// What a server does for /metrics in each call: two readings of the clock, one outcome, four durations.
/// (src/runtime/calls/execution.cpp, src/server/rpc/rpc_endpoint.cpp)
void count_one(runtime::CallStats& stats, Clock::time_point begun) {
    stats.run.record(std::chrono::nanoseconds(500));
    stats.queue.record(std::chrono::nanoseconds(100));
    const auto print = Clock::now();
    stats.count(0);
    const auto now = Clock::now();
    stats.serialise.record(now - print);
    stats.answer.record(now - begun);
}

/// Microseconds for each call of one function, when so many threads call it.
double cost(runtime::CallStats& stats, std::size_t threads, double seconds) {
    std::atomic<bool> end{false};
    std::atomic<std::uint64_t> calls{0};
    const auto begun = Clock::now();
    {
        std::vector<std::jthread> all;
        for (std::size_t i = 0; i < threads; ++i) {
            all.emplace_back([&] {
                std::uint64_t mine = 0;
                for (; !end.load(std::memory_order_relaxed); ++mine)
                    count_one(stats, begun);
                calls += mine;
            });
        }
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
        end.store(true);
    }
    return micros_since(begun) * static_cast<double>(threads) / static_cast<double>(calls.load());
}

}  // namespace

void metrics(Report& report, const Settings& settings) {
    report.group("counters of /metrics");
    runtime::CallStats stats;
    const double one = cost(stats, 1, settings.seconds);
    report.row("one thread", {{"ns a call", 1000 * one}});
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    report.row("as many threads as cores, one function", {{"ns a call", 1000 * cost(stats, cores, settings.seconds)}});
    report.target({"counters of /metrics, us a call", one, Target::Bound::at_most, kMostMicros});
}

}  // namespace bench
