#include "base/system/files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace shared_tensor {

std::string rejection_of_writers(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path file = fs::canonical(path, error);
    if (error) return {};
    struct stat of_file {
    }, of_folder{};
    if (::stat(file.c_str(), &of_file) != 0 || ::stat(file.parent_path().c_str(), &of_folder) != 0) return {};
    // In a sticky folder such as /tmp, a user cannot replace files of other users.
    const bool is_replaceable = (of_folder.st_mode & S_IWOTH) != 0 && (of_folder.st_mode & S_ISVTX) == 0;
    if ((of_file.st_mode & S_IWOTH) == 0 && !is_replaceable) return {};
    return "may be written to by everybody, or its folder may: chmod o-w";
}

bool belongs_to_another(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && status.st_uid != ::getuid() && status.st_uid != 0;
}

bool is_own_folder(const std::string& path) {
    struct stat found {};
    return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == ::getuid() &&
           (found.st_mode & 0022) == 0;
}

bool FileWatch::changed() {
    auto now = look();
    const bool is_settled = now == seen_;
    seen_ = std::move(now);
    if (!is_settled || seen_ == known_) return false;
    known_ = seen_;
    return true;
}

std::vector<FileWatch::Stamp> FileWatch::look() const {
    std::vector<Stamp> stamps;
    for (const std::string& path : paths_) {
        struct stat found {};
        if (path.empty() || ::stat(path.c_str(), &found) != 0) {
            stamps.emplace_back();
        } else {
            stamps.push_back({found.st_dev, found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec,
                              found.st_mode});
        }
    }
    return stamps;
}

}  // namespace shared_tensor
