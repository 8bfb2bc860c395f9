#pragma once

#include <cstdint>
#include <functional>

#include "base/concurrency/clock.hpp"

namespace shared_tensor {

/// Reserves 16 MiB of address space, without using any page, for the moment when memory runs out. The first allocation
/// by `operator new` that fails then frees the reserve and succeeds, so that errors can be sent and GET /healthz
/// answered. Sets the std::new_handler, so it is for programs, not for libraries. Under a limit of address space
/// (ulimit -v) it also bounds what the heap takes of it for threads. Call it once, before other threads start.
void keep_memory_reserve();

/// Whether the reserve exists or could be taken again now; true if no reserve was asked for. While it is false, reject
/// new work that needs memory: the rest is for errors and for work that frees memory. Any thread.
bool has_memory_reserve() noexcept;

/// Whether there is no address space or memory for a few more threads. Takes some microseconds. Any thread.
bool memory_is_short() noexcept;

/// Returns freed heap memory to the system when a burst of work is over. glibc keeps freed memory in arenas, each used
/// by a few threads: after 2,000 calls at once, 130 MB stayed there. Not thread-safe: one thread calls sweep().
class HeapTrimmer {
public:
    /// `trim` returns the free memory; it takes a few milliseconds.
    explicit HeapTrimmer(std::function<void()> trim = &trim_heap) : trim_(std::move(trim)) {}

    struct Load {
        std::uint64_t requests = 0;  ///< served since the start
        std::size_t threads = 0;     ///< serving requests now
        bool is_short = false;       ///< memory_is_short()
    };
    /// Call it regularly. Trims when threads have ended, 5 s after the last request, or when memory is short; at most
    /// every 10 s.
    void sweep(Load load, SteadyTime now);

private:
    static void trim_heap();

    const std::function<void()> trim_;
    Load last_{};
    SteadyTime request_at_{}, trimmed_at_{};
    bool used_ = false, shrank_ = false;  // since the last trim
};

}  // namespace shared_tensor
