#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"

namespace shared_tensor {

/// A background executor: one thread that runs posted work in order, for work that no caller should wait for (unmapping
/// memory, messages to servers).
/// Thread safety: all methods from any thread, except the destructor.
class Background {
public:
    explicit Background(const std::string& thread_name);
    ~Background();  ///< runs all posted work, delayed work too without its delay, then ends the thread

    /// `work` must not throw. Runs `work` on the calling thread if there is no memory to queue it.
    void post(std::function<void()> work) noexcept { post_at(SteadyTime::min(), std::move(work)); }
    /// Like post(), but runs `work` after `delay`. Until then the caller can add more to the same work.
    void post_after(std::chrono::milliseconds delay, std::function<void()> work) noexcept {
        post_at(real_clock().now() + delay, std::move(work));
    }
    /// Blocks until the work posted before is done, except delayed work. Must not be called by posted work.
    void flush();

private:
    struct State {
        std::multimap<SteadyTime, std::function<void()>> work;  ///< by the time when it is due
        bool closing = false;
    };
    void post_at(SteadyTime due, std::function<void()> work) noexcept;
    void serve();
    /// Blocks until work is due. Empty when the executor closes.
    std::function<void()> next();

    Guarded<State> state_;
    std::jthread thread_;
};

/// The background executor of this process. It is never destroyed, because its own work may drop the last owner of an
/// object that it would wait for. A forked child makes an executor of its own, since threads are not copied.
Background& background_executor();

/// A second executor, for messages to servers: a server may be slow to answer.
Background& request_executor();

/// Calls `sweep` every `period` on a thread of its own until that is destroyed. `sweep` should not throw; exceptions
/// are logged.
std::jthread maintenance(const std::string& thread_name, std::chrono::milliseconds period, std::function<void()> sweep);

}  // namespace shared_tensor
