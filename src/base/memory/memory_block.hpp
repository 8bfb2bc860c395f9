#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace shared_tensor {

/// Memory for tensors, aligned to 64 bytes.
struct MemoryBlock {
    std::byte* data = nullptr;
    std::shared_ptr<const void> owner;
};
/// Returns a block of at least `bytes` bytes, which is more than 0. Throws std::bad_alloc.
using TakeBlock = std::function<MemoryBlock(std::uint64_t bytes)>;

/// Bytes of a body that are made when they are sent, a bounded piece at a time.
class BodySource {
public:
    class Reading {
    public:
        virtual ~Reading() = default;
        /// The next piece, valid until the next call; empty at the end. May block. What it throws cuts the answer off.
        virtual std::span<const std::byte> next() = 0;
    };

    virtual ~BodySource() = default;
    /// `count` bytes from `offset` on, which are there. The source outlives what is returned.
    virtual std::unique_ptr<Reading> read(std::uint64_t offset, std::uint64_t count) const = 0;
};

/// Bytes that are written from where they lie, kept alive by `owner` until they are written; or `count` bytes of a
/// source.
struct BodyPart {
    std::span<const std::byte> bytes{};
    std::shared_ptr<const void> owner{};
    std::shared_ptr<const BodySource> source{};
    std::uint64_t offset = 0, count = 0;

    std::uint64_t size() const { return source != nullptr ? count : bytes.size(); }
    /// `n` bytes of it from `first` on, which are there.
    BodyPart part(std::uint64_t first, std::uint64_t n) const {
        if (source != nullptr) return {{}, {}, source, offset + first, n};
        return {bytes.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n)), owner};
    }
};

}  // namespace shared_tensor
