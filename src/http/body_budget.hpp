#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace shared_tensor::http {

/// Bytes of request bodies that are held at once, by requests and by whoever keeps a body longer. Thread-safe.
class BodyBudget {
public:
    explicit BodyBudget(std::size_t limit) : limit_(limit) {}

    /// A share of the budget; given back when it is destroyed. Outlives the server safely.
    class Share {
    public:
        Share() = default;
        Share(Share&& other) noexcept : used_(std::move(other.used_)), bytes_(std::exchange(other.bytes_, 0)) {}
        Share& operator=(Share&& other) noexcept {
            std::swap(used_, other.used_);
            std::swap(bytes_, other.bytes_);
            return *this;
        }
        ~Share() {
            if (used_) used_->fetch_sub(bytes_, std::memory_order_relaxed);
        }
        std::size_t bytes() const { return bytes_; }

    private:
        friend class BodyBudget;
        Share(std::shared_ptr<std::atomic<std::size_t>> used, std::size_t bytes)
            : used_(std::move(used)), bytes_(bytes) {}
        std::shared_ptr<std::atomic<std::size_t>> used_;
        std::size_t bytes_ = 0;
    };

    /// None when there is not that much left.
    std::optional<Share> take(std::size_t bytes) {
        if (bytes > limit_) return std::nullopt;
        std::size_t before = used_->load(std::memory_order_relaxed);
        do {  // what does not fit is not there for a moment either: others would be refused for it
            if (before > limit_ - bytes) return std::nullopt;
        } while (!used_->compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
        return Share(used_, bytes);
    }
    std::size_t used() const { return used_->load(std::memory_order_relaxed); }

private:
    const std::size_t limit_;
    std::shared_ptr<std::atomic<std::size_t>> used_ = std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace shared_tensor::http
