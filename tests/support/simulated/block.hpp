#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "support/simulated/handle.hpp"

namespace shared_tensor::tensor::simulated {

struct BlockHeader;

/// An allocation of this process. Its first page is a BlockHeader, which the processes that opened it share; the data
/// follows.
class OwnBlock {
public:
    /// Throws std::bad_alloc.
    OwnBlock(std::size_t device, std::size_t bytes);
    OwnBlock(const OwnBlock&) = delete;
    OwnBlock& operator=(const OwnBlock&) = delete;
    ~OwnBlock();

    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    std::size_t device() const { return device_; }
    std::uint64_t generation() const { return generation_; }
    IpcBytes handle() const;
    /// Returns the number of other living processes that have the block open.
    std::size_t openers() const;

private:
    BlockHeader* header() const;

    const std::size_t device_, bytes_;
    const std::uint64_t generation_;
    UniqueFd fd_;
    std::byte* mapped_ = nullptr;
    std::byte* data_ = nullptr;
};

/// An opened allocation of another process.
class OpenedBlock {
public:
    /// Throws DeviceRejected, std::bad_alloc.
    OpenedBlock(std::size_t device, const IpcBytes& bytes, std::uint64_t generation);
    OpenedBlock(OpenedBlock&& other) noexcept;
    OpenedBlock& operator=(OpenedBlock&&) = delete;
    ~OpenedBlock();

    std::byte* data() const { return mapped_ + kHeaderBytes; }
    std::size_t bytes() const { return size_ - kHeaderBytes; }

    static constexpr std::size_t kHeaderBytes = 4096;

private:
    std::byte* mapped_ = nullptr;
    std::size_t size_ = 0;
    std::size_t slot_ = 0;
};

}  // namespace shared_tensor::tensor::simulated
