#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "http/connection.hpp"
#include "http/server.hpp"
#include "util/buffer_pool.hpp"

namespace shared_tensor::http {

/// Bytes of request bodies that are held at once, by requests and by whoever keeps a body longer.
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
        const std::size_t before = used_->fetch_add(bytes, std::memory_order_relaxed);
        if (bytes <= limit_ && before <= limit_ - bytes) return Share(used_, bytes);
        used_->fetch_sub(bytes, std::memory_order_relaxed);
        return std::nullopt;
    }
    std::size_t used() const { return used_->load(std::memory_order_relaxed); }

private:
    const std::size_t limit_;
    std::shared_ptr<std::atomic<std::size_t>> used_ = std::make_shared<std::atomic<std::size_t>>(0);
};

struct Counters {
    std::atomic<std::uint64_t> accepted{0}, refused{0}, requests{0}, bytes_in{0}, bytes_out{0};

    static void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
        counter.fetch_add(amount, std::memory_order_relaxed);
    }
};

/// What the threads that serve connections share.
struct ServerContext {
    ServerContext(ServerOptions chosen, Handler& above, std::size_t max_body_bytes)
        : options(std::move(chosen)), handler(above), body_budget(max_body_bytes) {}

    const ServerOptions options;
    Handler& handler;
    BufferPool buffers;
    BodyBudget body_budget;
    Counters counters;
    std::atomic<bool> draining{false};
    std::atomic<std::size_t> spinning{0};

    /// Asks the poller to tell when the peer of this active connection disappears.
    std::function<void(Connection&)> watch_peer;
};

}  // namespace shared_tensor::http
