#include "base/memory/heap.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <new>
#include <utility>

namespace shared_tensor {

namespace {

constexpr std::size_t kReserveBytes = std::size_t{16} << 20;
constexpr std::chrono::seconds kQuiet{5}, kBetween{10};

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

/// Each arena of glibc takes 64 MiB of addresses for good, and there may be 8 for each core: under a limit they would
/// leave nothing for the stacks of threads.
void limit_arenas_under_limit_of_addresses() {
    constexpr int kArenas = 2;
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) ::mallopt(M_ARENA_MAX, kArenas);
}

}  // namespace

void keep_memory_reserve() {
    limit_arenas_under_limit_of_addresses();
    if (!take_reserve()) throw std::bad_alloc();
    is_kept.store(true);
    std::set_new_handler(&release_reserve);
}

bool has_memory_reserve() noexcept {
    if (reserve.load(std::memory_order_relaxed) != nullptr || !is_kept.load(std::memory_order_relaxed)) return true;
    return take_reserve();
}

bool memory_is_short() noexcept {
    constexpr std::size_t kStacks = std::size_t{32} << 20;  // of four threads
    if (!has_memory_reserve()) return true;
    void* const pages = ::mmap(nullptr, kStacks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return true;
    ::munmap(pages, kStacks);
    return false;
}

void HeapTrimmer::sweep(Load load, SteadyTime now) {
    if (load.requests != last_.requests) {
        used_ = true;
        request_at_ = now;
    }
    if (load.threads < last_.threads || load.is_short) used_ = shrank_ = true;
    last_ = load;
    const bool is_over = shrank_ || now - request_at_ >= kQuiet;
    if (!used_ || !is_over || now - trimmed_at_ < kBetween) return;
    used_ = shrank_ = false;
    trimmed_at_ = now;
    trim_();
}

void HeapTrimmer::trim_heap() { ::malloc_trim(0); }

}  // namespace shared_tensor
