#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace shared_tensor::daemon {

/// Removes the ready file, writes the log (for at most a second), and ends the process. Destroys nothing, because
/// functions that ignore their cancellation may still run. Any thread may call it.
[[noreturn]] void leave(int code);

/// Lets SIGTERM and SIGINT end the process in bounded time, whatever its other threads do. The thread st-signals takes
/// the signals. Before serves(), a signal ends the process at once. After serves(), a signal lets wait() return, and
/// the process has `drain_time` and kMoreTime to end by itself; then, or with a second signal, st-signals ends it.
class Ending {
public:
    static constexpr std::chrono::seconds kMoreTime{3};

    /// Call it before any other thread starts, because threads inherit the signal mask, which blocks these signals.
    Ending();

    /// From now on, the end of the process removes this file (except by SIGKILL and _exit()).
    static void owns_ready_file(const std::string& path);
    /// From now on, SIGSEGV, SIGABRT and similar signals write a line and the stack, and remove the ready file, before
    /// the process ends.
    static void watch_crashes();
    /// From now on, exit() and std::quick_exit() in a plugin or library write a line and end the process with code 1.
    /// Exit handlers run in reverse order, so call it before plugins are loaded and again after that.
    static void watch_exit();
    void serves(std::chrono::milliseconds drain_time);
    /// Blocks until the first signal that ends the process. Calls `on_hangup` on this thread after each SIGHUP.
    void wait(const std::function<void()>& on_hangup);

private:
    struct Asked;
    std::shared_ptr<Asked> asked_;  // shared with the thread, which runs until the process ends
};

}  // namespace shared_tensor::daemon
