#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace shared_tensor::log {

/// A file to which a thread of its own appends lines. write() never blocks: if the file takes no lines, the last
/// kMaxWaiting lines wait, older lines are dropped, and the log says how many. If the file was moved away or removed
/// (logrotate), the lines after that go to a new file. If it cannot be written, lines are lost and the log says why.
/// Thread-safe.
class LineFile {
public:
    static constexpr std::size_t kMaxWaiting = 8192;

    /// `path`: a file, made with mode 0600 if it does not exist, or "-" for standard output. Throws std::runtime_error
    /// with the path and the reason.
    explicit LineFile(const std::string& path);
    /// As flush(). If the file blocks for longer, its thread stays.
    ~LineFile();
    LineFile(const LineFile&) = delete;
    LineFile& operator=(const LineFile&) = delete;

    /// `line`: without a line break.
    void write(std::string_view line) noexcept;
    /// Waits at most a second until the lines so far are written. False if the time was too short, or in a forked
    /// child.
    bool flush() noexcept;

private:
    class Queue;
    std::unique_ptr<Queue> queue_;
};

}  // namespace shared_tensor::log
