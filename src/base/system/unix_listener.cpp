#include "base/system/unix_listener.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "base/bytes/check.hpp"

namespace shared_tensor {

namespace {

constexpr int kBacklog = 4096;  // the kernel reduces it to net.core.somaxconn
constexpr int kFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;

[[noreturn]] void fail(int error, const std::string& what) {
    throw std::system_error(error, std::generic_category(), what);
}

/// Two servers that start at once must not take each other's new socket for a dead one, so a server holds this lock
/// while it checks and binds. It waits at most 1 s: another user who holds the lock cannot keep us from starting.
UniqueFd lock_folder_of(const std::string& path) {
    const auto folder = std::filesystem::path(path).parent_path();
    UniqueFd fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (int attempt = 0; fd && attempt < 100; ++attempt) {
        if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return fd;
}

/// EPROTOTYPE: a process listens there with a socket of another type.
bool somebody_listens(const sockaddr_un& address) {
    const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | kFlags, 0));
    if (!probe) return true;
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
    return errno != ECONNREFUSED && errno != ENOENT;  // EAGAIN: the backlog is full, so the server lives
}

void remove_dead_socket(const std::string& path, const sockaddr_un& address) {
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0) return;
    if (!S_ISSOCK(found.st_mode))
        fail(EEXIST, "cannot listen on unix socket " + path + " (it is no socket; remove it or choose another path)");
    if (somebody_listens(address)) fail(EADDRINUSE, "cannot listen on unix socket " + path);
    ::unlink(path.c_str());
}

}  // namespace

sockaddr_un unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        fail(ENAMETOOLONG, "cannot use unix socket " + path + " (107 characters at most)");
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

UnixListener::UnixListener(std::string path, int type) : path_(std::move(path)) {
    const std::string what = "cannot listen on unix socket " + path_;
    const sockaddr_un address = unix_address(path_);
    fd_ = UniqueFd(SHARED_TENSOR_CHECK_ERRNO(::socket(AF_UNIX, type | kFlags, 0), what));
    // bind() gives the file the mode of the socket. So the file never has a wider mode, and the umask, which all
    // threads share, is not changed.
    SHARED_TENSOR_CHECK_ERRNO(::fchmod(fd(), 0600), what);
    const UniqueFd lock = lock_folder_of(path_);
    remove_dead_socket(path_, address);
    SHARED_TENSOR_CHECK_ERRNO(::bind(fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address), what);
    struct stat file {};
    if (::lstat(path_.c_str(), &file) == 0) {
        device_ = file.st_dev;
        inode_ = file.st_ino;
    }
    SHARED_TENSOR_CHECK_ERRNO(::listen(fd(), kBacklog), what);
}

UnixListener::~UnixListener() {
    struct stat now {};
    if (!fd_ || inode_ == 0 || ::lstat(path_.c_str(), &now) != 0) return;
    if (now.st_dev == device_ && now.st_ino == inode_) ::unlink(path_.c_str());
}

std::size_t remove_dead_sockets(const std::string& folder) {
    const UniqueFd lock = lock_folder_of(folder + "/x");  // no server is between bind() and listen()
    std::size_t removed = 0;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
        const std::string path = entry.path().string();
        if (!entry.is_socket(failed) || path.size() >= sizeof(sockaddr_un::sun_path)) continue;
        if (!somebody_listens(unix_address(path)) && ::unlink(path.c_str()) == 0) ++removed;
    }
    return removed;
}

}  // namespace shared_tensor
