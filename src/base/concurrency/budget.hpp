#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

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

}  // namespace shared_tensor
