#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor {

/// A thread for work that nobody should wait for (unmapping, telling others), done in order.
/// Thread safety: all methods from any thread but the destructor.
class Background {
public:
    explicit Background(const std::string& thread_name);
    ~Background();  ///< does what waits, later work too, then ends

    /// `work` must not throw. Runs here and now where there is no memory to remember it.
    void post(std::function<void()> work) noexcept;
    /// The same once that time has passed: whoever has more of the same meanwhile can add it.
    void post_after(std::chrono::milliseconds delay, std::function<void()> work) noexcept;
    /// Blocks until what was posted before is done, but for later work. Not from work itself.
    void flush();

private:
    struct State {
        std::deque<std::function<void()>> waiting;
        std::multimap<SteadyTime, std::function<void()>> later;
        std::uint64_t changes = 0;  ///< of `later`
        bool closing = false;
    };
    void serve();
    /// Blocks until there is some; empty at the end.
    std::function<void()> next();

    Guarded<State> state_;
    std::jthread thread_;
};

}  // namespace shared_tensor
