#pragma once

#include <string>
#include <vector>

#include <sys/stat.h>

namespace shared_tensor {

/// Notices that files were changed or replaced, by what stat() tells of them. Files that are gone count as changed too.
/// Not thread-safe.
class FileWatch {
public:
    /// Empty paths are left aside.
    explicit FileWatch(std::vector<std::string> paths) : paths_(std::move(paths)), known_(look()), seen_(known_) {}

    /// Whether they changed since the last time that it said so, and have stayed as they are since the last look: a
    /// file that is just being written is not read.
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
