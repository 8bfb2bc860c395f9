#include "base/memory/memory_reserve.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <new>

namespace shared_tensor {

namespace {

constexpr std::size_t kReserveBytes = std::size_t{16} << 20;

std::atomic<void*> reserve{nullptr};
std::atomic<bool> is_kept{false};

/// Untouched pages use no memory, only address space; resource limits and overcommit rules count address space.
bool take_reserve() noexcept {
    void* const pages = ::mmap(nullptr, kReserveBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return false;
    void* none = nullptr;
    if (!reserve.compare_exchange_strong(none, pages)) ::munmap(pages, kReserveBytes);
    return true;
}

/// The std::new_handler: `operator new` tries again when it returns.
void release_reserve() {
    void* const pages = reserve.exchange(nullptr);
    if (pages == nullptr) throw std::bad_alloc();
    ::munmap(pages, kReserveBytes);
}

}  // namespace

void keep_memory_reserve() {
    if (!take_reserve()) throw std::bad_alloc();
    is_kept.store(true);
    std::set_new_handler(&release_reserve);
}

bool has_memory_reserve() noexcept {
    if (reserve.load(std::memory_order_relaxed) != nullptr || !is_kept.load(std::memory_order_relaxed)) return true;
    return take_reserve();
}

}  // namespace shared_tensor
