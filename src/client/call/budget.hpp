#pragma once

#include <algorithm>
#include <stdexcept>

#include <shared_tensor/retry.hpp>

#include "base/concurrency/guarded.hpp"

namespace shared_tensor::client {

/// Counts the retries that a RetryBudget allows. Thread safety: all methods from any thread.
class Budget {
public:
    explicit Budget(RetryBudget limits) : limits_(limits), saved_(limits.saved) {
        if (limits.per_call < 0 || limits.saved < 0) {
            throw std::invalid_argument("RetryBudget: per_call and saved can't be negative");
        }
    }

    void earn() {
        saved_.with([&](double& saved) { saved = std::min(limits_.saved, saved + limits_.per_call); });
    }
    /// Takes one retry from the budget. Returns false if the budget is exhausted.
    bool spend() {
        return saved_.with([](double& saved) {
            if (saved < 1) return false;
            saved -= 1;
            return true;
        });
    }

private:
    const RetryBudget limits_;
    Guarded<double> saved_;
};

}  // namespace shared_tensor::client
