#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace shared_tensor {

/// Counts the faults (SIGBUS) in memory that one other process can take away. Lock-free: a signal handler adds to it.
class FaultCount {
public:
    /// Of memory that this process made and that any other process may punch holes into.
    static const std::shared_ptr<FaultCount>& of_own_memory();

    void add() noexcept { count_.fetch_add(1); }
    std::uint64_t get() const noexcept { return count_.load(); }

private:
    std::atomic<std::uint64_t> count_{0};
};

/// Tells whether memory of one process failed since the watch was made: what was read there may be zeros.
/// A call makes one before it reads its arguments, and drops its result if the watch says so.
class FaultWatch {
public:
    /// Watches the memory of this process only.
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

/// Installs a handler for SIGBUS, once in a process. A fault in GuardedMemory is counted, zero pages are mapped over
/// all of it, and the thread goes on. Any other SIGBUS goes to the handler that was there before; where there was none,
/// a line on standard error names the address, and the process ends by the signal.
void handle_memory_faults();

/// Memory that the handler may replace by zero pages, from construction to destruction; unmap it after that.
/// Thread safety: any thread may make one; the memory may be used by any thread meanwhile.
class GuardedMemory {
public:
    /// `data` and `size` are whole pages of mappings that nothing else shares. Throws std::bad_alloc.
    GuardedMemory(std::byte* data, std::size_t size, std::shared_ptr<FaultCount> faults);
    GuardedMemory(const GuardedMemory&) = delete;
    GuardedMemory& operator=(const GuardedMemory&) = delete;
    ~GuardedMemory();

    /// The memory was replaced by zero pages: it shows nothing of the other process any more.
    bool is_broken() const noexcept;

    struct Entry;

private:
    const std::shared_ptr<FaultCount> faults_;
    Entry& entry_;
};

/// Whether the address lies in GuardedMemory of this process. Takes some ns for each that there is.
bool is_guarded(const void* address) noexcept;

}  // namespace shared_tensor
