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

/// Values of one kind; latencies are in microseconds.
struct Sample {
    std::vector<double> values;

    double quantile(double q) const {
        if (values.empty()) return 0;
        std::vector<double> sorted = values;
        const auto rank = static_cast<std::ptrdiff_t>(q * static_cast<double>(sorted.size() - 1));
        std::nth_element(sorted.begin(), sorted.begin() + rank, sorted.end());
        return sorted[static_cast<std::size_t>(rank)];
    }
    double median() const { return quantile(0.5); }
    void append(const Sample& more) { values.insert(values.end(), more.values.begin(), more.values.end()); }
};

/// Calls again and again for `seconds`; does not record the first tenth of that time.
template <class Call>
Sample time_calls(double seconds, Call&& call) {
    const auto begin = Clock::now();
    const auto elapsed = [&] { return micros_since(begin) / 1e6; };
    while (elapsed() < seconds / 10)
        call();
    Sample latencies;
    while (elapsed() < seconds) {
        const auto start = Clock::now();
        call();
        latencies.values.push_back(micros_since(start));
    }
    return latencies;
}

}  // namespace bench
