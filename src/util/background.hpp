#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "util/guarded.hpp"

namespace shared_tensor {

/// A thread for work that nobody should wait for (unmapping, telling others), done in order.
/// Thread safety: all methods from any thread but the destructor.
class Background {
public:
    explicit Background(const std::string& thread_name);
    ~Background();  ///< does what waits, then ends

    /// `work` must not throw. Runs here and now where there is no memory to remember it.
    void post(std::function<void()> work) noexcept;
    /// Blocks until what was posted before is done. Not from work itself.
    void flush();

private:
    struct State {
        std::deque<std::function<void()>> waiting;
        bool closing = false;
    };
    void serve();

    Guarded<State> state_;
    std::jthread thread_;
};

}  // namespace shared_tensor
