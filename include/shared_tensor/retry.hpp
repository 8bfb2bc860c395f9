#pragma once

// When a client repeats a failed call.
//
// A strategy is called only if a repeat is safe: nothing was sent (connection refused), the server rejected the call
// before it ran (-32001 busy, -32009 shutting down), or the caller allows repeats (CallOptions::idempotent, or an
// idempotency key). The call's deadline limits all its tries together. No delay is shorter than the server's
// retry_after_ms.

#include <chrono>
#include <functional>
#include <optional>

#include <shared_tensor/error.hpp>

namespace shared_tensor {

/// A failed try of a call. Valid while the strategy runs.
struct FailedTry {
    int number;             ///< 1 for the first try
    const RpcError& error;  ///< TransportFailure, ServerBusy, ShuttingDown
};

/// Returns the delay before the next try; nullopt: no further try. Several threads may call it at once; it must not
/// throw.
using RetryStrategy = std::function<std::optional<std::chrono::milliseconds>(const FailedTry&)>;

struct Backoff {
    int tries = 4;  ///< number of tries, including the first
    std::chrono::milliseconds initial{50};
    std::chrono::milliseconds longest{5'000};
    double factor = 2.0;
    std::function<double()> random{};  ///< returns 0 to 1; null: the strategy has its own generator
};

/// Waits a random time between zero and initial * factor^(number - 1), at most `longest` (full jitter), so that clients
/// that failed together do not repeat together. Throws std::invalid_argument for a negative delay, or a factor below 1.
RetryStrategy exponential_backoff(Backoff backoff = {});

/// Waits the same delay before each repeat; `tries` includes the first try.
RetryStrategy fixed_delay(std::chrono::milliseconds delay, int tries);

/// Never repeats a call.
RetryStrategy no_retry();

/// Limits all retries of a client together, so that they do not multiply the load on an overloaded server: each call
/// adds `per_call`, each retry costs 1. The budget starts with `saved`, which is also its maximum.
struct RetryBudget {
    double per_call = 0.2;
    double saved = 20;
};

}  // namespace shared_tensor
