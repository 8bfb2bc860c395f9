#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/system/unique_fd.hpp"

namespace shared_tensor::tensor {

class LentBlock;

struct DeferredFreesUse {
    std::size_t blocks = 0;
    std::uint64_t bytes = 0;
};

/// Deferred free: keeps device memory whose lease has ended before the reader confirmed that it closed the block. To
/// free a block that is open in another process is undefined behaviour. So it stays until the reader confirms the
/// close, or until the reader's process has ended.
/// Thread safety: all methods from any thread.
class DeferredFrees {
public:
    /// Keeps a block, unless its reader has closed it. `process` becomes readable when the reader's process ends; null:
    /// its end is not detected.
    void keep(std::shared_ptr<const LentBlock> block, std::shared_ptr<const UniqueFd> process);
    /// Releases a block that its reader has closed. A later keep() of the block has no effect, because the lease may
    /// end at the same time.
    void free(const LentBlock* block);
    /// Maintenance: releases the blocks of readers whose process has ended.
    void sweep();
    DeferredFreesUse use() const;

private:
    struct Kept {
        std::shared_ptr<const LentBlock> block;
        std::shared_ptr<const UniqueFd> process;
    };
    Guarded<std::vector<Kept>> kept_;
};

/// Returns a descriptor that becomes readable when the process ends; null if the kernel gives none.
std::shared_ptr<const UniqueFd> watch_process(int pid);

}  // namespace shared_tensor::tensor
