#include "support/simulated/block.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <new>
#include <utility>

namespace shared_tensor::tensor::simulated {

/// The first page of a block, in memory that other processes write to.
struct BlockHeader {
    std::uint64_t nonce, generation, bytes;
    std::atomic<std::uint32_t> freed;
    std::array<std::atomic<std::int32_t>, 256> openers;  ///< pids of the processes that have it open; 0: free entry
};
static_assert(sizeof(BlockHeader) <= OpenedBlock::kHeaderBytes);
static_assert(std::atomic<std::int32_t>::is_always_lock_free);

namespace {

std::uint64_t next_generation() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

}  // namespace

OwnBlock::OwnBlock(std::size_t device, std::size_t bytes)
    : device_(device), bytes_(bytes), generation_(next_generation()) {
    if (bytes > SIZE_MAX - OpenedBlock::kHeaderBytes) throw std::bad_alloc();
    const std::size_t size = bytes + OpenedBlock::kHeaderBytes;
    fd_ = make_memory("shared-tensor-simulated", size);
    mapped_ = map_memory(fd_, size);
    data_ = mapped_ + OpenedBlock::kHeaderBytes;
    auto* made = new (mapped_) BlockHeader{};
    made->nonce = random_nonce();
    made->generation = generation_;
    made->bytes = bytes;
}

OwnBlock::~OwnBlock() {
    header()->freed.store(1);
    ::munmap(mapped_, bytes_ + OpenedBlock::kHeaderBytes);
}

BlockHeader* OwnBlock::header() const { return std::launder(reinterpret_cast<BlockHeader*>(mapped_)); }

IpcBytes OwnBlock::handle() const {
    Handle handle = own_handle(Handle::Kind::block, fd_.get(), header()->nonce);
    handle.device = static_cast<std::uint32_t>(device_);
    return to_bytes(handle);
}

std::size_t OwnBlock::openers() const {
    std::size_t count = 0;
    for (const auto& opener : header()->openers) {
        const std::int32_t pid = opener.load();
        count += pid > 0 && pid != ::getpid() && ::kill(pid, 0) == 0 ? 1 : 0;
    }
    return count;
}

OpenedBlock::OpenedBlock(std::size_t device, const IpcBytes& bytes, std::uint64_t generation) {
    const Handle handle = from_bytes(bytes, Handle::Kind::block);
    if (is_own(handle)) throw DeviceRejected("a handle cannot be opened in the process that made it");
    if (handle.device != device) throw DeviceRejected("this handle belongs to another device");
    const Memory memory = open_memory(handle);
    if (memory.bytes < kHeaderBytes) throw DeviceRejected("the memory behind this handle is no block");
    size_ = memory.bytes;
    mapped_ = map_memory(memory.fd, size_);
    auto* header = std::launder(reinterpret_cast<BlockHeader*>(mapped_));
    const bool right = header->nonce == handle.nonce && header->freed.load() == 0 &&
                       header->bytes == size_ - kHeaderBytes && header->generation == generation;
    std::int32_t nobody = 0;
    while (right && slot_ < header->openers.size() &&
           !header->openers[slot_].compare_exchange_strong(nobody, ::getpid())) {
        nobody = 0;
        ++slot_;
    }
    if (right && slot_ < header->openers.size()) return;
    ::munmap(mapped_, size_);
    throw DeviceRejected(right ? "too many processes have this block open"
                               : "the block behind this handle was freed, or is of another generation");
}

OpenedBlock::OpenedBlock(OpenedBlock&& other) noexcept
    : mapped_(std::exchange(other.mapped_, nullptr)), size_(other.size_), slot_(other.slot_) {}

OpenedBlock::~OpenedBlock() {
    if (mapped_ == nullptr) return;
    std::launder(reinterpret_cast<BlockHeader*>(mapped_))->openers[slot_].store(0);
    ::munmap(mapped_, size_);
}

}  // namespace shared_tensor::tensor::simulated
