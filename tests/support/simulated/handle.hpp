#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/devices/ipc_device.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::tensor::simulated {

/// What the 64 bytes of a simulated handle say: whose descriptor, and how to know that it is still that one.
struct Handle {
    enum class Kind : std::uint32_t { block = 1, event = 2 };
    Kind kind = Kind::block;
    std::uint32_t device = 0;
    std::uint32_t slot = 0;  ///< of an event
    std::uint32_t pid = 0;
    std::uint32_t fd = 0;
    std::uint64_t start = 0;  ///< of that process, in ticks since the boot
    std::uint64_t inode = 0;
    std::uint64_t nonce = 0;  ///< stands in the memory as well
};

/// With a checksum over all of it and the machine's boot.
IpcBytes to_bytes(const Handle& handle);
/// Throws DeviceRefused for bytes that are no handle of that kind, or of another boot.
Handle from_bytes(const IpcBytes& bytes, Handle::Kind kind);

/// Of this process, for its own memory behind `fd`.
Handle own_handle(Handle::Kind kind, int fd, std::uint64_t nonce);
bool is_own(const Handle& handle);

/// The memory that the handle names: that process's and still that descriptor, of our own user, sealed against
/// shrinking. Throws DeviceRefused.
struct Memory {
    UniqueFd fd;
    std::size_t bytes = 0;
};
Memory open_memory(const Handle& handle);

/// Whether the process that the handle names lives.
bool is_alive(const Handle& handle);

/// Memory to be shared: zeroed, all pages there, sealed against shrinking and growing. Throws std::bad_alloc.
UniqueFd make_memory(const char* name, std::size_t bytes);
/// Readable and writable. Throws std::bad_alloc.
std::byte* map_memory(const UniqueFd& fd, std::size_t bytes);

std::uint64_t random_nonce();

}  // namespace shared_tensor::tensor::simulated
