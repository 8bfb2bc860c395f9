#pragma once

#include <cstddef>
#include <cstdint>

#include "base/system/unique_fd.hpp"
#include "tensor/device/ipc_device.hpp"

namespace shared_tensor::tensor::simulated {

/// The content of the 64 bytes of a simulated handle: a file descriptor of a process, and the data to check that it is
/// still the same process and the same memory.
struct Handle {
    enum class Kind : std::uint32_t { block = 1, event = 2 };
    Kind kind = Kind::block;
    std::uint32_t device = 0;
    std::uint32_t slot = 0;  ///< of an event
    std::uint32_t pid = 0;
    std::uint32_t fd = 0;
    std::uint64_t start = 0;  ///< start time of the process, in ticks since the boot
    std::uint64_t inode = 0;
    std::uint64_t nonce = 0;  ///< a random number that is in the memory too
};

/// Encodes a handle, with a checksum over the handle and the machine's boot id.
IpcBytes to_bytes(const Handle& handle);
/// Decodes a handle. Throws DeviceRejected for other bytes, for another kind, and for a handle from another boot.
Handle from_bytes(const IpcBytes& bytes, Handle::Kind kind);

/// Makes a handle of this process for its memory in `fd`. The caller sets `device` and `slot`.
Handle own_handle(Handle::Kind kind, int fd, std::uint64_t nonce);
/// Whether this process made the handle.
bool is_own(const Handle& handle);

/// The memory of a handle, opened in this process.
struct Memory {
    UniqueFd fd;
    std::size_t bytes = 0;
};
/// Opens the memory that a handle names. Throws DeviceRejected if the process has ended, if the descriptor is another
/// one now, or if the memory belongs to another user, can shrink or has missing pages.
Memory open_memory(const Handle& handle);

/// Whether the process that the handle names is alive.
bool is_alive(const Handle& handle);

/// Makes memory for sharing: zeroed, with all pages allocated, sealed against shrinking and growing. Throws
/// std::bad_alloc.
UniqueFd make_memory(const char* name, std::size_t bytes);
/// Maps memory as shared, for reading and writing. Throws std::bad_alloc.
std::byte* map_memory(const UniqueFd& fd, std::size_t bytes);

std::uint64_t random_nonce();

}  // namespace shared_tensor::tensor::simulated
