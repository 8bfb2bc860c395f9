#pragma once

// When a client repeats a call that failed.
//
// A strategy is asked only when the repeat is safe: nothing was sent (connection refused), the server refused the call
// before it ran (-32001 busy, -32009 shutting down), or the caller said so (CallOptions::idempotent, or an idempotency
// key). The call's deadline bounds all its tries together; what the server says about when to come back is a lower
// bound of every delay.

#include <chrono>
#include <functional>
#include <optional>

#include <shared_tensor/error.hpp>

namespace shared_tensor {

/// One try of a call that failed. Valid during the call of the strategy.
struct FailedTry {
    int number;             ///< 1 for the first
    const RpcError& error;  ///< TransportFailure, ServerBusy, ShuttingDown
};

/// How long to wait before the next try, or nothing to give up. Called from any thread, many at once; must not throw.
using RetryStrategy = std::function<std::optional<std::chrono::milliseconds>(const FailedTry&)>;

struct Backoff {
    int tries = 4;  ///< in all, the first included
    std::chrono::milliseconds initial{50};
    std::chrono::milliseconds longest{5'000};
    double factor = 2.0;
    std::function<double()> random{};  ///< from 0 to 1; none: a generator of its own
};

/// Waits a random time between zero and initial * factor^(number - 1), at most `longest`: full jitter, so that many
/// clients that failed together do not come back together. Throws std::invalid_argument for a negative delay, or a
/// factor below 1.
RetryStrategy exponential_backoff(Backoff backoff = {});

/// Always the same delay, `tries` in all.
RetryStrategy fixed_delay(std::chrono::milliseconds delay, int tries);

/// One try only.
RetryStrategy no_retry();

/// Bounds all retries of a client together, so that they never multiply the load on a server in trouble: each call
/// earns `per_call`, each retry costs 1, and at most `saved` is kept (and there at the start).
struct RetryBudget {
    double per_call = 0.2;
    double saved = 20;
};

}  // namespace shared_tensor
