#include "contest.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace bench {

namespace {

constexpr int kTurns = 20;

Sample measure(const Contestant& one, double seconds) {
    try {
        return one.measure(seconds);
    } catch (const std::exception& error) {
        throw std::runtime_error(one.name + ": " + error.what());
    }
}

}  // namespace

std::map<std::string, Sample> by_turns(const std::vector<Contestant>& contestants, double seconds) {
    std::map<std::string, Sample> samples;
    for (int turn = 0; turn < kTurns; ++turn) {
        for (const Contestant& one : contestants)
            samples[one.name].append(measure(one, seconds / kTurns));
    }
    return samples;
}

double calls_per_second(int threads, double seconds, const std::function<Caller(int number)>& make_caller) {
    std::vector<Caller> callers;
    for (int i = 0; i < threads; ++i) {
        callers.push_back(make_caller(i));
        callers.back()();
    }
    std::atomic<std::uint64_t> answered{0};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto begin = Clock::now();
    const auto work = [&](const Caller& call) {
        try {
            std::uint64_t mine = 0;
            for (; micros_since(begin) < seconds * 1e6; ++mine)
                call();
            answered += mine;
        } catch (...) {
            const std::lock_guard lock(mutex);
            failure = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> running;
        for (const Caller& call : callers)
            running.emplace_back([&work, &call] { work(call); });
    }
    if (failure) std::rethrow_exception(failure);
    return static_cast<double>(answered) / (micros_since(begin) / 1e6);
}

}  // namespace bench
