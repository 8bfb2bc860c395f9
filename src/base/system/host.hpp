#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/system/unique_fd.hpp"

namespace shared_tensor {

/// Identifies this host since its last boot (/proc/sys/kernel/random/boot_id). All containers of a host have the same
/// id. Empty if the kernel does not tell.
std::string boot_id();

/// The PID namespace, e.g. "pid:[4026531836]": process ids are valid within it. Empty if the kernel does not tell.
std::string pid_namespace();

/// How many descriptors this process may have open (the soft limit, RLIMIT_NOFILE).
std::size_t descriptor_limit();
/// Raises the soft limit to the hard limit if the process may, at most 2^20. Returns the limit in force.
std::size_t raise_descriptor_limit();
/// How many descriptors this process has open now; 0 if /proc cannot be read.
std::size_t open_descriptors();

/// Bytes of memory that this process may use: the memory of the machine, or the limit of its cgroup (v1 or v2) or of a
/// group above it if that is less. `root` is put before /proc and /sys, for tests.
std::uint64_t memory_size(const std::string& root = "");

/// Reads one variable of the environment; nullptr when it is not set.
using Environment = std::function<const char*(const char* name)>;

/// The port of server and clients when none is given: 2537 plus RANK, else plus LOCAL_RANK (one server per GPU). Empty
/// variables count as unset. Throws std::invalid_argument if the rank is not a number, or if the port would be above
/// 65535.
int default_port(const Environment& environment);

/// Reads the environment of this process.
int default_port();

/// The default path of the local channel of a server on that TCP port: <port>.sock in a folder of this user. The folder
/// is shared_tensor in XDG_RUNTIME_DIR or in /run/user/<uid>, else /tmp/shared_tensor-<uid>.
std::string default_local_socket(int port);
/// For a server that listens on a Unix socket only: the path of that socket plus ".local".
std::string default_local_socket(const std::string& unix_socket);

/// A descriptor that becomes readable when the process ends (pidfd_open). Empty if there is no such process, or if the
/// kernel is older than 5.3.
UniqueFd process_descriptor(pid_t pid);

}  // namespace shared_tensor
