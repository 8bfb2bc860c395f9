#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shared_tensor/error.hpp>

namespace shared_tensor::runtime {

/// Counts durations in buckets. The limit of a bucket is twice the limit of the bucket before it: 8 us (2^13 ns), 16
/// us,
/// ..., 34 s (2^35 ns). The last bucket has no limit. Thread safety: all methods from any thread; none blocks.
class DurationBuckets {
public:
    static constexpr std::size_t kFirstPower = 13, kLimits = 23;

    void record(std::chrono::nanoseconds duration) {
        const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
        const auto doublings = static_cast<std::size_t>(std::bit_width(ns >> kFirstPower));
        counts_[std::min(doublings, kLimits)].fetch_add(1, std::memory_order_relaxed);
        sum_ns_.fetch_add(ns, std::memory_order_relaxed);
    }

    struct Counts {
        std::array<std::uint64_t, kLimits + 1> counts{};
        std::uint64_t sum_ns = 0;

        /// The limit of a bucket in seconds; the last bucket has none.
        static double limit_of(std::size_t bucket) {
            return static_cast<double>(std::uint64_t{1} << (kFirstPower + bucket)) / 1e9;
        }
        Counts& operator+=(const Counts& other) {
            for (std::size_t i = 0; i < counts.size(); ++i)
                counts[i] += other.counts[i];
            sum_ns += other.sum_ns;
            return *this;
        }
    };
    Counts read() const {
        Counts read;
        for (std::size_t i = 0; i < counts_.size(); ++i)
            read.counts[i] = counts_[i].load(std::memory_order_relaxed);
        read.sum_ns = sum_ns_.load(std::memory_order_relaxed);
        return read;
    }

private:
    std::array<std::atomic<std::uint64_t>, kLimits + 1> counts_{};
    std::atomic<std::uint64_t> sum_ns_{0};
};

/// An outcome of calls: a result, or an error with this code. The last one stands for all other codes.
struct CallOutcomeKind {
    int code;
    std::string_view name;
};
inline constexpr std::array kCallOutcomes = std::to_array<CallOutcomeKind>({
    {0, "ok"},
    {static_cast<int>(ErrorCode::function_failed), "function_failed"},
    {static_cast<int>(ErrorCode::invalid_params), "invalid_params"},
    {static_cast<int>(ErrorCode::busy), "busy"},
    {static_cast<int>(ErrorCode::deadline_exceeded), "deadline_exceeded"},
    {static_cast<int>(ErrorCode::cancelled), "cancelled"},
    {static_cast<int>(ErrorCode::not_authorised), "not_authorised"},
    {static_cast<int>(ErrorCode::shutting_down), "shutting_down"},
    {static_cast<int>(ErrorCode::out_of_memory), "out_of_memory"},
    {static_cast<int>(ErrorCode::response_too_large), "response_too_large"},
    {static_cast<int>(ErrorCode::transport_not_possible), "transport_not_possible"},
    {static_cast<int>(ErrorCode::unknown_or_expired), "unknown_or_expired"},
    {static_cast<int>(ErrorCode::invalid_request), "invalid_request"},
    {static_cast<int>(ErrorCode::input_failed), "input_failed"},
    {static_cast<int>(ErrorCode::outcome_unknown), "outcome_unknown"},
    {static_cast<int>(ErrorCode::internal_error), "internal_error"},
    {1, "other"},
});

/// The calls of one function, or of one method of the server: how they ended, and how long they took.
/// Thread safety: all methods from any thread; none blocks.
class CallStats {
public:
    using Outcomes = std::array<std::uint64_t, kCallOutcomes.size()>;

    /// Counts a call. `code` is the code of the error that the caller got; 0: a result.
    void count(int code) {
        std::size_t kind = 0;
        while (kind + 1 < kCallOutcomes.size() && kCallOutcomes[kind].code != code)
            ++kind;
        outcomes_[kind].fetch_add(1, std::memory_order_relaxed);
    }
    /// The counts, in the order of kCallOutcomes.
    Outcomes outcomes() const {
        Outcomes read;
        for (std::size_t i = 0; i < outcomes_.size(); ++i)
            read[i] = outcomes_[i].load(std::memory_order_relaxed);
        return read;
    }

    DurationBuckets queue, run;         ///< of each run: the time before it began, and the time that it took
    DurationBuckets serialise, answer;  ///< of each answer: the time to print it, and the whole time of its call

private:
    std::array<std::atomic<std::uint64_t>, kCallOutcomes.size()> outcomes_{};
};

}  // namespace shared_tensor::runtime
