#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "util/guarded.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::tensor {

class LentBlock;

struct QuarantineUse {
    std::size_t blocks = 0;
    std::uint64_t bytes = 0;
};

/// Device memory whose lease has ended though its reader never said that it closed it: to free it while it is open
/// there is undefined, so it stays until the reader says so after all, or its process is gone.
/// Thread safety: all methods from any thread.
class Quarantine {
public:
    /// `process` becomes readable when the reader's process ends.
    void keep(std::shared_ptr<const LentBlock> block, std::shared_ptr<const UniqueFd> process);
    /// Its reader has closed it: it is not kept any more, nor when its lease turns out to have ended just now.
    void free(const LentBlock* block);
    /// Housekeeping: lets go what nobody can have open any more.
    void tend();
    QuarantineUse use() const;

private:
    struct Kept {
        std::shared_ptr<const LentBlock> block;
        std::shared_ptr<const UniqueFd> process;
    };
    Guarded<std::vector<Kept>> kept_;
};

/// A descriptor that becomes readable at the end of that process; null where the kernel gives none.
std::shared_ptr<const UniqueFd> watch_process(int pid);

}  // namespace shared_tensor::tensor
