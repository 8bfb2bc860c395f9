#pragma once

#include <string>
#include <vector>

#include <sys/stat.h>

namespace shared_tensor {

/// Detects that files were changed, replaced or removed, by comparing results of stat(). Not thread-safe.
class FileWatch {
public:
    /// Empty paths are ignored.
    explicit FileWatch(std::vector<std::string> paths) : paths_(std::move(paths)), known_(look()), seen_(known_) {}

    /// Whether the files changed since the last call that returned true, and are the same as at the previous call. So a
    /// file that is still being written does not count yet.
    bool changed() {
        auto now = look();
        const bool is_settled = now == seen_;
        seen_ = std::move(now);
        if (!is_settled || seen_ == known_) return false;
        known_ = seen_;
        return true;
    }

private:
    struct Stamp {
        dev_t device = 0;
        ino_t inode = 0;
        off_t size = -1;
        time_t seconds = 0;
        long nanoseconds = 0;
        mode_t mode = 0;
        friend bool operator==(const Stamp&, const Stamp&) = default;
    };
    std::vector<Stamp> look() const {
        std::vector<Stamp> stamps;
        for (const std::string& path : paths_) {
            struct stat found {};
            if (path.empty() || ::stat(path.c_str(), &found) != 0) {
                stamps.emplace_back();
            } else {
                stamps.push_back({found.st_dev, found.st_ino, found.st_size, found.st_mtim.tv_sec,
                                  found.st_mtim.tv_nsec, found.st_mode});
            }
        }
        return stamps;
    }

    const std::vector<std::string> paths_;
    std::vector<Stamp> known_, seen_;
};

}  // namespace shared_tensor
