#include "base/concurrency/in_parallel.hpp"

#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/log/log.hpp"

namespace shared_tensor {

void in_parallel(std::size_t threads, std::uint64_t count, const std::function<void(std::uint64_t i)>& work) {
    struct Failure {
        std::exception_ptr reason;
    };
    std::atomic<std::uint64_t> next{0};
    std::atomic<bool> stopped{false};
    Guarded<Failure> failure;
    const auto guarded = [&]() noexcept {
        try {
            for (std::uint64_t i = next++; i < count && !stopped.load(std::memory_order_relaxed); i = next++)
                work(i);
        } catch (...) {
            failure.with([](Failure& first) {
                if (!first.reason) first.reason = std::current_exception();
            });
            stopped = true;
        }
    };
    {
        std::vector<std::jthread> others;
        others.reserve(threads);
        try {
            while (others.size() + 1 < threads)
                others.emplace_back(guarded);
        } catch (const std::system_error& error) {  // fewer threads do it
            log::debug("no more threads to work in parallel: ", error.what());
        }
        guarded();
    }
    const auto reason = failure.with([](const Failure& first) { return first.reason; });
    if (reason) std::rethrow_exception(reason);
}

}  // namespace shared_tensor
