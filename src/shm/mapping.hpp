#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "shm/segment.hpp"
#include "util/memory_faults.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::shm {

/// A descriptor that came in is no segment that can be read without danger.
class BadSegment : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Whether every page of a memfd is there, and none is a huge page: only then can no touch of them fail.
bool is_allocated(const UniqueFd& memory, std::size_t bytes);

/// Another process's segment, mapped for us alone: what we write stays here and is seen by nobody else; or, of a
/// writable one, by all.
/// Not thread-safe by itself.
class Mapping {
public:
    /// Throws BadSegment unless it is sealed memory of exactly `bytes` bytes that are all there, not in huge pages: no
    /// process can take a page of it away. Throws std::bad_alloc when it cannot be mapped.
    Mapping(const UniqueFd& descriptor, std::size_t bytes, Sharing sharing = Sharing::read_only);
    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&&) = delete;
    ~Mapping();

    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }

    /// From now on a page that cannot be had after all (the machine lost it) does not end the process: see
    /// GuardedMemory. Counted in `faults`.
    void survive_faults(std::shared_ptr<FaultCount> faults);
    /// Such a fault happened: the mapping shows zeros for ever.
    bool is_broken() const { return guard_ != nullptr && guard_->is_broken(); }

    /// Drops the pages that we wrote, and only those: the maker's bytes are seen again, and the other pages stay warm.
    /// Nobody may use it meanwhile. Takes some 2 us per MiB: for a background thread.
    void forget_writes() const;
    /// The same where it takes some us only: it is small, or little of it was touched. False where that is not so.
    bool forget_writes_if_cheap() const;

private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    bool private_ = true;
    std::unique_ptr<GuardedMemory> guard_;
};

}  // namespace shared_tensor::shm
