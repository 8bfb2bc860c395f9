#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace shared_tensor {

/// Counts SIGBUS faults in memory that another process can truncate. Lock-free: a signal handler adds to it.
class FaultCount {
public:
    /// The count for memory that this process made, into which other processes may punch holes.
    static const std::shared_ptr<FaultCount>& of_own_memory();

    void add() noexcept { count_.fetch_add(1); }
    std::uint64_t get() const noexcept { return count_.load(); }

private:
    std::atomic<std::uint64_t> count_{0};
};

/// Tells whether memory of a process failed since the watch was made: data read there may be zeros. A call makes a
/// watch before it reads its arguments, and drops its result if failed() is true.
class FaultWatch {
public:
    /// Watches only the memory that this process made.
    FaultWatch() = default;
    explicit FaultWatch(std::shared_ptr<const FaultCount> peer) : peer_(std::move(peer)), peer_before_(peer_->get()) {}

    bool failed() const noexcept {
        return FaultCount::of_own_memory()->get() != own_before_ || (peer_ != nullptr && peer_->get() != peer_before_);
    }

private:
    std::uint64_t own_before_ = FaultCount::of_own_memory()->get();
    std::shared_ptr<const FaultCount> peer_;
    std::uint64_t peer_before_ = 0;
};

/// Installs a handler for SIGBUS, once in a process. The handler counts a fault in GuardedMemory and maps zero pages
/// over all of that memory; the thread then goes on. Any other SIGBUS goes to the previous handler. If there is none, a
/// line on standard error names the address and the process ends by the signal.
void handle_memory_faults();

/// Memory that the handler may replace by zero pages while this object lives. Unmap the memory after the destructor.
/// Thread safety: any thread may create one; any thread may use the memory.
class GuardedMemory {
public:
    /// `data` and `size` cover whole pages, and those pages are used for nothing else. Throws std::bad_alloc.
    GuardedMemory(std::byte* data, std::size_t size, std::shared_ptr<FaultCount> faults);
    GuardedMemory(const GuardedMemory&) = delete;
    GuardedMemory& operator=(const GuardedMemory&) = delete;
    ~GuardedMemory();

    /// The memory was replaced by zero pages, so it no longer shows data of the other process.
    bool is_broken() const noexcept;

    struct Entry;

private:
    const std::shared_ptr<FaultCount> faults_;
    Entry& entry_;
};

/// Whether the address is in GuardedMemory of this process. Takes a few ns per GuardedMemory that exists.
bool is_guarded(const void* address) noexcept;

}  // namespace shared_tensor
