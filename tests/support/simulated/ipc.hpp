#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/system/unique_fd.hpp"
#include "tensor/device/ipc_device.hpp"

// What simulated devices share between processes: blocks of memory and events, named by handles.

namespace shared_tensor::tensor::simulated {

/// The 64 bytes of a handle: a file descriptor of a process, and the data to check that it is still the same process
/// and the same memory.
struct Handle {
    enum class Kind : std::uint32_t { block = 1, event = 2 };
    std::uint32_t magic = 0;
    Kind kind = Kind::block;
    std::uint32_t device = 0;
    std::uint32_t slot = 0;  ///< of an event
    std::uint32_t pid = 0, fd = 0;
    std::uint64_t start = 0;  ///< start time of the process, in ticks since the boot
    std::uint64_t inode = 0;
    std::uint64_t nonce = 0;  ///< a random number that is in the memory too
    std::uint64_t unused = 0;
    std::uint64_t sum = 0;  ///< a checksum over the other members and the machine's boot id
};

/// Decodes a handle. Throws DeviceRejected for other bytes, for another kind, and for a handle from another boot.
Handle from_bytes(const IpcBytes& bytes, Handle::Kind kind);
/// Whether this process made the handle.
bool is_own(const Handle& handle);

/// Memory that processes share, mapped for reading and writing while this object lives.
class SharedMemory {
public:
    /// Makes zeroed memory with all pages allocated, sealed against shrinking and growing. Throws std::bad_alloc.
    explicit SharedMemory(std::size_t bytes);
    /// Opens the memory of another process. Throws DeviceRejected if that process made the handle no more: it has
    /// ended, the descriptor is another one now, or the memory belongs to another user, can shrink or has missing
    /// pages.
    explicit SharedMemory(const Handle& handle);
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    ~SharedMemory();

    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }
    /// Makes a handle of this process for the memory.
    IpcBytes handle(Handle::Kind kind, std::size_t device, std::uint64_t nonce, std::uint32_t slot = 0) const;

private:
    void map();

    UniqueFd fd_;
    std::size_t size_ = 0;
    std::byte* data_ = nullptr;
};

/// An allocation of this process, or an opened allocation of another process. Its first page is a header, which the
/// processes that have it open share; the data follows.
class Block {
public:
    /// Allocates. Throws std::bad_alloc.
    Block(std::size_t device, std::size_t bytes);
    /// Opens. Throws DeviceRejected, std::bad_alloc.
    Block(std::size_t device, const IpcBytes& handle, std::uint64_t generation);
    ~Block();

    bool is_own() const { return is_own_; }
    std::size_t device() const { return device_; }
    std::uint64_t generation() const { return generation_; }
    const IpcBytes& handle() const { return handle_; }
    std::byte* data() const { return memory_.data() + kHeaderBytes; }
    std::size_t size() const { return memory_.size() - kHeaderBytes; }
    /// Returns the number of other living processes that have the block open.
    std::size_t openers() const;

private:
    struct Header;
    static constexpr std::size_t kHeaderBytes = 4096;
    Header& header() const;

    const SharedMemory memory_;
    const bool is_own_;
    const std::size_t device_;
    const std::uint64_t generation_;
    IpcBytes handle_{};
    std::size_t slot_ = 0;  ///< of this process in the header's openers
};

/// The events of this process, in memory that other processes can map.
class EventPool {
public:
    static constexpr std::size_t kEvents = 1000;

    struct Taken {
        DeviceEvent event;  ///< null if no event is left
        /// Tells the readers that the work before the event is done. May be called after the event's end.
        std::function<void()> complete;
    };
    Taken take(std::size_t device);
    std::size_t in_use() const;

private:
    struct State {
        std::shared_ptr<const SharedMemory> page;  ///< never freed, because handles in other processes refer to it
        std::vector<std::uint32_t> free;
    };
    Guarded<State> state_;
};

/// Blocks until the work before another process's event is done. Throws DeviceRejected, also if that process ends or
/// takes more than 30 s.
void wait_for_event(const IpcBytes& bytes);

}  // namespace shared_tensor::tensor::simulated
