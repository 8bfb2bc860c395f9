#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>

namespace shared_tensor::log {

/// A line on its way to its sink.
struct QueuedLine {
    int level = 0;
    int mark = 0;
    std::string_view text;
    std::chrono::system_clock::time_point time;
};

/// Writes lines. Called only by the one thread of a queue.
class LineSink {
public:
    virtual ~LineSink() = default;
    virtual void write(const QueuedLine& line) = 0;
    /// Writes what it holds back.
    virtual void finish() {}
};

/// A queue and its one thread, for lines of a file that may block: spdlog's. The destructor waits for the thread, which
/// may be blocked for ever. Thread-safe.
class LineQueue {
public:
    /// `thread`: its name, a string literal. When `kept` lines wait, the oldest is dropped for the next one.
    LineQueue(std::shared_ptr<LineSink> sink, const char* thread, std::size_t kept);
    ~LineQueue();

    /// `level` and `mark` go to the sink with the line. Throws if there is no memory.
    void write(int level, int mark, std::string_view text);
    /// How many lines the full queue has dropped so far.
    std::size_t dropped() const;
    /// Blocks until the lines queued so far are written, at most for `bound`. False if the time was too short.
    bool flush(std::chrono::milliseconds bound);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor::log
