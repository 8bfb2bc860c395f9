#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

namespace shared_tensor {

/// Why a file must not run as this program's own code: every user may write to it, or replace it in its folder. Empty
/// if it may be used or does not exist.
std::string rejection_of_writers(const std::string& path);

/// Whether the file belongs to a user other than this user and root: that user's code would run as this user.
bool belongs_to_another(const std::string& path);

/// Whether `path` is a folder that this user owns and no other user can write to.
bool is_own_folder(const std::string& path);

/// Detects that files were changed, replaced or removed, by comparing results of stat(). Not thread-safe.
class FileWatch {
public:
    /// Empty paths are ignored.
    explicit FileWatch(std::vector<std::string> paths) : paths_(std::move(paths)), known_(look()), seen_(known_) {}

    /// Whether the files changed since the last call that returned true, and are the same as at the previous call. So a
    /// file that is still being written does not count yet.
    bool changed();

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
    std::vector<Stamp> look() const;

    const std::vector<std::string> paths_;
    std::vector<Stamp> known_, seen_;
};

}  // namespace shared_tensor
