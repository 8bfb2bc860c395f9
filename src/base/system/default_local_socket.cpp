#include "base/system/default_local_socket.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace shared_tensor {

bool is_own_folder(const std::string& path) {
    struct stat found {};
    return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == ::getuid() &&
           (found.st_mode & 0022) == 0;
}

namespace {

/// A folder in XDG_RUNTIME_DIR or /run/user/<uid>, else in /tmp; the server checks it with is_own_folder().
std::string runtime_folder() {
    const std::string uid = std::to_string(::getuid());
    if (const char* given = std::getenv("XDG_RUNTIME_DIR"); given != nullptr && is_own_folder(given))
        return std::string(given) + "/shared_tensor";
    if (const std::string run = "/run/user/" + uid; is_own_folder(run)) return run + "/shared_tensor";
    return "/tmp/shared_tensor-" + uid;
}

}  // namespace

std::string default_local_socket(int port) { return runtime_folder() + '/' + std::to_string(port) + ".sock"; }

std::string default_local_socket(const std::string& unix_socket) { return unix_socket + ".local"; }

}  // namespace shared_tensor
