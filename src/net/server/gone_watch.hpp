#pragma once

#include <functional>
#include <utility>

#include "base/concurrency/guarded.hpp"

namespace shared_tensor::net {

/// Calls one callback when a peer is gone. Thread safety: all methods from any thread.
class GoneWatch {
public:
    void watch(std::function<void()> gone) {
        watch_.with([&](Watch& watch) { watch.gone = std::move(gone); });
    }
    /// Blocks while a callback runs. No callback starts after unwatch() has returned.
    void unwatch() {
        std::function<void()> dropped;  // destroyed outside the lock
        auto watch = watch_.lock();
        dropped = std::exchange(watch->gone, nullptr);
        watch.wait([](const Watch& now) { return !now.running; });
    }
    /// The peer is gone: calls the callback, once.
    void report() {
        auto gone = watch_.with([](Watch& watch) {
            watch.running = watch.gone != nullptr;
            return std::exchange(watch.gone, nullptr);
        });
        if (!gone) return;
        gone();
        gone = nullptr;
        watch_.with([](Watch& watch) { watch.running = false; });
        watch_.notify_all();
    }

private:
    struct Watch {
        std::function<void()> gone;
        bool running = false;
    };
    Guarded<Watch> watch_;
};

}  // namespace shared_tensor::net
