#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace shared_tensor::daemon {

/// Ends the process, its ready file removed and its log written (for a second at most). Nothing is destroyed, since
/// functions that ignore their cancellation may still run. Any thread.
[[noreturn]] void leave(int code);

/// Lets SIGTERM and SIGINT end the process in bounded time, whatever its other threads do: the thread st-signals takes
/// them. Before serves() a signal ends the process at once. After it wait() returns, and the process has `drain_time`
/// and kMoreTime to end by itself; then, or with a second signal, st-signals ends it.
class Ending {
public:
    static constexpr std::chrono::seconds kMoreTime{3};

    /// Before any other thread starts, since it blocks these signals for all of them.
    Ending();

    /// From here the file is removed when the process ends, however it does (but by SIGKILL and _exit()).
    static void owns_ready_file(const std::string& path);
    /// SIGSEGV, SIGABRT and their like end the process with a line, and remove the ready file.
    static void watch_crashes();
    /// From here exit() and std::quick_exit() of a plugin or a library end the process with a line and code 1. Their
    /// handlers run in the reverse order: call it before plugins are loaded and again after.
    static void watch_exit();
    void serves(std::chrono::milliseconds drain_time);
    /// Blocks until the first signal.
    void wait();

private:
    struct Asked;
    std::shared_ptr<Asked> asked_;  // with the thread, which runs until the process ends
};

}  // namespace shared_tensor::daemon
