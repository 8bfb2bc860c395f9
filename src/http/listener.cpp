#include "http/listener.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>

#include "util/check.hpp"

namespace shared_tensor::http {

namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn
constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

[[noreturn]] void fail(int error, const std::string& what) {
    throw std::system_error(error, std::generic_category(), what);
}

std::string place(const std::string& host, int port) {
    const bool v6 = host.find(':') != std::string::npos;
    std::string text;
    text.append(v6 ? "[" : "").append(host).append(v6 ? "]:" : ":").append(std::to_string(port));
    return text;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0) {
        fail(error == EAI_SYSTEM ? errno : EADDRNOTAVAIL,
             "cannot listen on " + place(host, port) + " (" + ::gai_strerror(error) + ")");
    }
    return {found, &::freeaddrinfo};
}

/// IPv4 first: "localhost" is mostly spelled 127.0.0.1 on the other side.
const addrinfo& choose(const addrinfo& first) {
    for (const addrinfo* one = &first; one != nullptr; one = one->ai_next) {
        if (one->ai_family == AF_INET) return *one;
    }
    return first;
}

int bound_port(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    SHARED_TENSOR_CHECK_ERRNO(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), "getsockname");
    return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                               : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

sockaddr_un unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        fail(ENAMETOOLONG, "cannot listen on unix socket " + path + " (107 characters at most)");
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

/// Two servers that start at once must not both take the other's fresh socket for a dead one: whoever looks and binds
/// holds this lock. A stranger who holds it for long cannot keep us from starting.
UniqueFd lock_folder_of(const std::string& path) {
    const auto folder = std::filesystem::path(path).parent_path();
    UniqueFd fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (int attempt = 0; fd && attempt < 100; ++attempt) {
        if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return fd;
}

bool somebody_listens(const sockaddr_un& address) {
    const UniqueFd probe(::socket(AF_UNIX, kSocketFlags, 0));
    if (!probe) return true;
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
    return errno != ECONNREFUSED && errno != ENOENT;  // EAGAIN: its queue is full, so it lives
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

Listener Listener::tcp(const std::string& host, int port) {
    const std::string what = "cannot listen on " + place(host, port);
    const AddressList addresses = resolve(host, port);
    const addrinfo& address = choose(*addresses);
    Listener made;
    made.fd_.reset(SHARED_TENSOR_CHECK_ERRNO(::socket(address.ai_family, kSocketFlags, 0), what));
    const int on = 1;  // a port whose old connections are in TIME_WAIT is free; one with a listener is not
    ::setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    SHARED_TENSOR_CHECK_ERRNO(::bind(made.fd(), address.ai_addr, address.ai_addrlen), what);
    SHARED_TENSOR_CHECK_ERRNO(::listen(made.fd(), kBacklog), what);
    made.port_ = bound_port(made.fd());
    return made;
}

Listener Listener::unix_socket(const std::string& path) {
    const std::string what = "cannot listen on unix socket " + path;
    const sockaddr_un address = unix_address(path);
    Listener made;
    made.fd_.reset(SHARED_TENSOR_CHECK_ERRNO(::socket(AF_UNIX, kSocketFlags, 0), what));
    // bind() gives the file the mode of the socket: it never exists with a wider one, and the umask of other threads
    // is left alone.
    SHARED_TENSOR_CHECK_ERRNO(::fchmod(made.fd(), 0600), what);
    const UniqueFd lock = lock_folder_of(path);
    remove_dead_socket(path, address);
    SHARED_TENSOR_CHECK_ERRNO(::bind(made.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address), what);
    made.path_ = path;
    struct stat file {};
    if (::lstat(path.c_str(), &file) == 0) {
        made.device_ = file.st_dev;
        made.inode_ = file.st_ino;
    }
    SHARED_TENSOR_CHECK_ERRNO(::listen(made.fd(), kBacklog), what);
    return made;
}

Listener::~Listener() {
    if (!fd_ || path_.empty()) return;
    struct stat now {};
    if (::lstat(path_.c_str(), &now) == 0 && now.st_dev == device_ && now.st_ino == inode_) ::unlink(path_.c_str());
}

}  // namespace shared_tensor::http
