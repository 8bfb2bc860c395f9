#include "base/log/line_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/concurrency/clock.hpp"
#include "base/log/line_queue.hpp"
#include "base/log/log.hpp"
#include "base/system/fork.hpp"
#include "base/system/unique_fd.hpp"

namespace shared_tensor::log {

namespace {

constexpr std::chrono::seconds kLookEvery{1};
constexpr std::chrono::seconds kFlushTime{1};
constexpr std::chrono::seconds kSayEvery{10};

UniqueFd open_file(const std::string& path) {
    if (path == "-") return UniqueFd(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    return UniqueFd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600));
}

class FileSink final : public LineSink {
public:
    explicit FileSink(std::string path) : path_(std::move(path)), file_(open_file(path_)) {
        if (!file_) throw std::runtime_error("the file " + path_ + " cannot be opened: " + std::strerror(errno));
    }

    void write(const QueuedLine& queued) override {
        look_for_file();
        std::string line(queued.text);
        line += '\n';
        const bool written = write_whole(line);
        if (!written && !failing_) log::error("lines are lost: ", path_, " cannot be written: ", std::strerror(errno));
        failing_ = !written;
    }

private:
    bool write_whole(std::string_view text) const {
        while (!text.empty()) {
            const ssize_t written = ::write(file_.get(), text.data(), text.size());
            if (written < 0 && errno != EINTR) return false;
            text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
        }
        return true;
    }

    /// Opens the path again if it is another file now.
    void look_for_file() {
        const SteadyTime now = real_clock().now();
        if (path_ == "-" || now - looked_ < kLookEvery) return;
        looked_ = now;
        struct stat ours {
        }, there{};
        const bool same = ::fstat(file_.get(), &ours) == 0 && ::stat(path_.c_str(), &there) == 0 &&
                          ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
        if (same) return;
        if (UniqueFd next = open_file(path_)) file_ = std::move(next);
    }

    const std::string path_;
    UniqueFd file_;
    SteadyTime looked_ = real_clock().now();
    bool failing_ = false;
};

}  // namespace

class LineFile::Queue {
public:
    explicit Queue(const std::string& path)
        : path_(path), lines_(std::make_shared<FileSink>(path), "st-lines", kMaxWaiting) {}

    void write(std::string_view line) {
        lines_.write(0, 0, line);
        if (lines_.dropped() != said_dropped_.load(std::memory_order_relaxed)) say_dropped();
    }
    bool flush() { return lines_.flush(kFlushTime); }
    bool is_here() const { return process_.is_here(); }

    /// Keeps a queue whose thread may be blocked for ever: the destructor would wait for it. Takes no lock, so that a
    /// forked child may call it.
    static void abandon(std::unique_ptr<Queue> queue) noexcept {
        Queue* const kept = queue.release();
        kept->next_abandoned_ = abandoned_.exchange(kept);
    }

private:
    void say_dropped() {
        const SteadyTime now = real_clock().now();
        SteadyTime next = say_again_.load();
        if (now < next || !say_again_.compare_exchange_strong(next, now + kSayEvery)) return;
        const std::size_t dropped = lines_.dropped();
        said_dropped_.store(dropped, std::memory_order_relaxed);
        log::warn(dropped, " lines were dropped so far: ", path_, " is not written as fast as lines come");
    }

    const ProcessMark process_;
    const std::string path_;
    std::atomic<std::size_t> said_dropped_{0};
    std::atomic<SteadyTime> say_again_{SteadyTime()};
    LineQueue lines_;
    Queue* next_abandoned_ = nullptr;
    inline static std::atomic<Queue*> abandoned_{nullptr};  ///< a list, so that no tool takes them for leaks
};

LineFile::LineFile(const std::string& path) : queue_(std::make_unique<Queue>(path)) {}

LineFile::~LineFile() {
    if (!flush()) Queue::abandon(std::move(queue_));
}

void LineFile::write(std::string_view line) noexcept {
    try {
        queue_->write(line);
    } catch (const std::exception&) {  // no memory for the line
    }
}

bool LineFile::flush() noexcept {
    try {
        return queue_->is_here() && queue_->flush();
    } catch (const std::exception&) {  // no memory
        return false;
    }
}

}  // namespace shared_tensor::log
