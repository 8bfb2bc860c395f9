#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/system/unique_fd.hpp"

namespace shared_tensor::local {

/// Writes memory once, from the first byte to the last, and then makes it immutable for all processes. The bytes are
/// written with write(2): the kernel neither maps nor clears fresh pages first, so this takes about half the time of a
/// copy into a new mapping.
///
/// Methods throw std::bad_alloc beyond the memory of the machine or the cgroup, std::system_error if there are no
/// descriptors or a file cannot be read. Not thread-safe.
class ImmutableMemory {
public:
    /// For `bytes` bytes, more than 0.
    explicit ImmutableMemory(std::uint64_t bytes);

    void append(std::span<const std::byte> bytes);
    /// Appends `count` bytes of a file. Returns fewer if the file ends before.
    std::uint64_t append_file(const UniqueFd& file, std::uint64_t offset, std::uint64_t count);
    /// Appends zeros until `offset` bytes were appended.
    void pad(std::uint64_t offset);

    /// Whole pages.
    std::size_t size() const { return size_; }
    /// Ends the writing: appends zeros until size() and adds all seals. Call it once. Throws std::logic_error if the
    /// kernel does not seal the memory.
    std::shared_ptr<const UniqueFd> seal();

private:
    std::uint64_t append_by_reading(const UniqueFd& file, off_t from, std::uint64_t count);

    const std::size_t size_;
    std::shared_ptr<UniqueFd> memory_;
    std::uint64_t end_ = 0;  ///< bytes that were appended
};

}  // namespace shared_tensor::local
