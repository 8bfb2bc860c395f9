#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"

namespace shared_tensor {

/// Limits how much of a resource is in use at once: bytes of request bodies, connections, descriptors. Thread-safe.
class Budget {
public:
    explicit Budget(std::size_t limit) : limit_(limit) {}

    /// A part of the budget. Its destructor gives the amount back. A share may outlive its Budget.
    class Share {
    public:
        Share() = default;
        Share(Share&& other) noexcept : used_(std::move(other.used_)), amount_(std::exchange(other.amount_, 0)) {}
        Share& operator=(Share&& other) noexcept {
            std::swap(used_, other.used_);
            std::swap(amount_, other.amount_);
            return *this;
        }
        ~Share() {
            if (used_) used_->fetch_sub(amount_, std::memory_order_relaxed);
        }
        std::size_t amount() const { return amount_; }

    private:
        friend class Budget;
        Share(std::shared_ptr<std::atomic<std::size_t>> used, std::size_t amount)
            : used_(std::move(used)), amount_(amount) {}
        std::shared_ptr<std::atomic<std::size_t>> used_;
        std::size_t amount_ = 0;
    };

    /// Nullopt when less than `amount` is left.
    std::optional<Share> take(std::size_t amount) {
        if (amount > limit_) return std::nullopt;
        std::size_t before = used_->load(std::memory_order_relaxed);
        do {  // `used_` never exceeds the limit, even briefly: other takers would be rejected
            if (before > limit_ - amount) return std::nullopt;
        } while (!used_->compare_exchange_weak(before, before + amount, std::memory_order_relaxed));
        return Share(used_, amount);
    }
    std::size_t used() const { return used_->load(std::memory_order_relaxed); }

private:
    const std::size_t limit_;
    std::shared_ptr<std::atomic<std::size_t>> used_ = std::make_shared<std::atomic<std::size_t>>(0);
};

/// A token bucket: `per_second` tokens a second on average, at most one second's worth at once. A request that costs
/// more than is left may still pass; later requests then wait until the debt is paid. So a large batch of calls is
/// possible, and costs its full price. Thread-safe.
class RateLimit {
public:
    /// 0 means no limit.
    explicit RateLimit(std::size_t per_second, const Clock& clock = real_clock())
        : per_second_(static_cast<double>(per_second)), clock_(&clock), bucket_(Bucket{per_second_, clock.now()}) {}

    /// Nullopt if the request may pass; else how long to wait before the next try.
    std::optional<std::chrono::milliseconds> take(std::size_t cost = 1) {
        if (per_second_ == 0) return std::nullopt;
        const SteadyTime now = clock_->now();
        return bucket_.with([&](Bucket& bucket) -> std::optional<std::chrono::milliseconds> {
            refill(bucket, now);
            if (bucket.level < 1) {
                const double wait_ms = (1 - bucket.level) / per_second_ * 1000;
                return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(wait_ms, 60'000.0)) + 1);
            }
            bucket.level -= static_cast<double>(cost);
            return std::nullopt;
        });
    }
    /// Charges more for a request that already passed.
    void charge(std::size_t cost) {
        if (per_second_ == 0 || cost == 0) return;
        bucket_.with([&](Bucket& bucket) { bucket.level -= static_cast<double>(cost); });
    }

private:
    struct Bucket {
        double level;
        SteadyTime filled;
    };
    void refill(Bucket& bucket, SteadyTime now) const {
        const std::chrono::duration<double> passed = now - bucket.filled;
        bucket.filled = now;
        bucket.level = std::min(per_second_, bucket.level + passed.count() * per_second_);
    }

    const double per_second_;
    const Clock* clock_;
    Guarded<Bucket> bucket_;
};

}  // namespace shared_tensor
