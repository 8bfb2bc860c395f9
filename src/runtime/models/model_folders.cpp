#include "runtime/models/model_folders.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace shared_tensor::models {

namespace {

namespace fs = std::filesystem;

bool is_plain(std::string_view file) {
    if (file.empty() || file.find('\0') != std::string_view::npos) return false;
    const fs::path path(file);
    if (path.is_absolute()) return false;
    for (const fs::path& part : path) {
        if (part.empty() || part == "." || part == "..") return false;
    }
    return true;
}

constexpr const char* kAnybodys = "may be written to by everybody, or its folder may: chmod o-w";

bool is_anybodys(const fs::path& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) != 0 || (status.st_mode & S_IWOTH) != 0;
}

bool is_below(const fs::path& path, const fs::path& folder) {
    const fs::path relative = path.lexically_relative(folder);
    return !relative.empty() && *relative.begin() != ".." && *relative.begin() != ".";
}

}  // namespace

ModelFolders::ModelFolders(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
        const auto reject = [&](const std::string& why) {
            throw std::invalid_argument("model folder " + folder + ": " + why);
        };
        std::error_code error;
        const fs::path absolute = fs::canonical(folder, error);
        if (error) reject(error.message());
        struct stat status {};
        if (::stat(absolute.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) reject("not a folder");
        if (is_anybodys(absolute)) reject("writable by everybody: chmod o-w it");
        folders_.push_back(absolute);
    }
}

ModelFolders::Found ModelFolders::find(std::string_view file) const {
    if (!is_plain(file)) return {};
    for (const std::string& folder : folders_) {
        std::error_code error;
        const fs::path path = fs::canonical(fs::path(folder) / file, error);
        if (error || !is_below(path, folder)) continue;
        for (fs::path part = path;; part = part.parent_path()) {
            if (is_anybodys(part)) return {{}, kAnybodys};
            if (part == folder) return {path, {}};
        }
    }
    return {};
}

}  // namespace shared_tensor::models
