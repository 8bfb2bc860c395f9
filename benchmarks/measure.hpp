#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace bench {

using Clock = std::chrono::steady_clock;

inline double micros_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Latencies in microseconds.
struct Latencies {
    std::vector<double> values;

    double quantile(double q) {
        if (values.empty()) return 0;
        const auto rank = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
        std::nth_element(values.begin(), values.begin() + rank, values.end());
        return values[static_cast<std::size_t>(rank)];
    }
};

/// Calls once and again for `seconds`, after a tenth of it unmeasured.
template <class Call>
Latencies time_calls(double seconds, Call call) {
    const auto begin = Clock::now();
    const auto elapsed = [&] { return micros_since(begin) / 1e6; };
    while (elapsed() < seconds / 10)
        call();
    Latencies latencies;
    while (elapsed() < seconds) {
        const auto start = Clock::now();
        call();
        latencies.values.push_back(micros_since(start));
    }
    return latencies;
}

/// `rounds` times, after one unmeasured.
template <class Call>
Latencies time_rounds(int rounds, Call call) {
    call();
    Latencies latencies;
    for (int i = 0; i < rounds; ++i) {
        const auto start = Clock::now();
        call();
        latencies.values.push_back(micros_since(start));
    }
    return latencies;
}

}  // namespace bench
