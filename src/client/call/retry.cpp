#include <shared_tensor/client/options.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <utility>

#include "base/system/fork.hpp"

namespace shared_tensor {

namespace {

using std::chrono::milliseconds;

double random_fraction() {
    thread_local std::minstd_rand generator{std::random_device{}()};
    thread_local ProcessMark process;
    if (!process.is_here()) {  // otherwise all forked children would wait for the same times
        generator.seed(std::random_device{}());
        process = ProcessMark();
    }
    return std::uniform_real_distribution<double>(0.0, 1.0)(generator);
}

milliseconds jittered(const Backoff& backoff, int number) {
    const double grown = static_cast<double>(backoff.initial.count()) * std::pow(backoff.factor, number - 1);
    const double bound = std::min(grown, static_cast<double>(backoff.longest.count()));
    const double fraction = backoff.random ? std::clamp(backoff.random(), 0.0, 1.0) : random_fraction();
    return milliseconds(static_cast<milliseconds::rep>(std::llround(bound * fraction)));
}

void require(bool holds, const char* text) {
    if (!holds) throw std::invalid_argument(text);
}

}  // namespace

RetryStrategy exponential_backoff(Backoff backoff) {
    require(backoff.initial.count() >= 0 && backoff.longest.count() >= 0, "Backoff: delays can't be negative");
    require(backoff.factor >= 1.0, "Backoff: factor must be at least 1");
    return [backoff = std::move(backoff)](const FailedTry& failed) -> std::optional<milliseconds> {
        if (failed.number >= backoff.tries) return std::nullopt;
        return jittered(backoff, failed.number);
    };
}

RetryStrategy fixed_delay(milliseconds delay, int tries) {
    require(delay.count() >= 0, "fixed_delay: the delay can't be negative");
    return [delay, tries](const FailedTry& failed) -> std::optional<milliseconds> {
        if (failed.number >= tries) return std::nullopt;
        return delay;
    };
}

RetryStrategy no_retry() {
    return [](const FailedTry&) -> std::optional<milliseconds> { return std::nullopt; };
}

}  // namespace shared_tensor
