#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <string>

#include "base/system/fork.hpp"

namespace shared_tensor {

/// The address of a socket file. Throws std::system_error (ENAMETOOLONG) for more than 107 characters.
sockaddr_un unix_address(const std::string& path);

/// A listening Unix socket, non-blocking. The destructor removes its file, unless another process replaced it.
class UnixListener {
public:
    /// Creates the socket file with mode 0600. Replaces the file of a server that has ended; a socket that a process
    /// listens on, or a file that is not a socket, is an error. `type` is SOCK_STREAM or SOCK_SEQPACKET. Throws
    /// std::system_error that names the path.
    explicit UnixListener(std::string path, int type = SOCK_STREAM);
    UnixListener(UnixListener&&) noexcept = default;
    UnixListener& operator=(UnixListener&&) = delete;
    ~UnixListener();

    int fd() const { return fd_.get(); }
    const std::string& path() const { return path_; }

private:
    ProcessFd fd_;
    std::string path_;
    dev_t device_ = 0;  // of the socket file that this object made
    ino_t inode_ = 0;
};

/// Removes the socket files in `folder` that no process listens on (their processes were killed). Returns how many.
std::size_t remove_dead_sockets(const std::string& folder);

}  // namespace shared_tensor
