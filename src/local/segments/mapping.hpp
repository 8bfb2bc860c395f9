#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/memory/memory_faults.hpp"
#include "base/system/unique_fd.hpp"
#include "local/segments/segment.hpp"

namespace shared_tensor::local {

/// A received descriptor is not a segment that can be read safely.
class BadSegment : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Whether all pages of a memfd are allocated and none is a huge page: only then no access can fail.
bool is_allocated(const UniqueFd& memory, std::size_t bytes);

/// A mapping of another process's segment. Writes to a read-only segment stay in this process; writes to a writable
/// segment are seen by all processes.
/// Not thread-safe.
class Mapping {
public:
    /// Throws BadSegment unless the descriptor is sealed memory of exactly `bytes` bytes, all allocated and not in huge
    /// pages: then no process can take a page away. Throws std::bad_alloc if it cannot be mapped.
    Mapping(const UniqueFd& descriptor, std::size_t bytes, Sharing sharing = Sharing::read_only);
    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&&) = delete;
    ~Mapping();

    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }

    /// From now on a fault on a page that the machine lost does not end the process: see GuardedMemory. Counts faults
    /// in `faults`.
    void survive_faults(std::shared_ptr<FaultCount> faults);
    /// Such a fault happened: the mapping shows zeros from then on.
    bool is_broken() const { return guard_ != nullptr && guard_->is_broken(); }

    /// Drops the pages that this process wrote, and only those: the maker's bytes are visible again, and the other
    /// pages stay mapped. No other thread may use the mapping meanwhile. Takes about 2 us per MiB: call it on a
    /// background thread.
    void forget_writes() const;
    /// Like forget_writes(), but only if that takes a few us: the mapping is small or little of it was touched. Else
    /// false.
    bool forget_writes_if_cheap() const;

private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    bool private_ = true;
    std::unique_ptr<GuardedMemory> guard_;
};

}  // namespace shared_tensor::local
