#include "tensor/device/deferred_frees.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "tensor/device/lent_block.hpp"

namespace shared_tensor::tensor {

namespace {

bool has_ended(const UniqueFd& process) {
    pollfd ended{process.get(), POLLIN, 0};
    return ::poll(&ended, 1, 0) > 0;
}

}  // namespace

void DeferredFrees::keep(std::shared_ptr<const LentBlock> block, std::shared_ptr<const UniqueFd> process) {
    kept_.with([&](auto& kept) {
        if (!block->is_closed()) kept.push_back({std::move(block), std::move(process)});
    });
}

void DeferredFrees::free(const LentBlock* block) {
    std::vector<Kept> gone;  // destroyed without the lock
    kept_.with([&](auto& kept) {
        block->mark_closed();
        const auto mine =
            std::partition(kept.begin(), kept.end(), [&](const Kept& one) { return one.block.get() != block; });
        std::move(mine, kept.end(), std::back_inserter(gone));
        kept.erase(mine, kept.end());
    });
}

void DeferredFrees::sweep() {
    std::vector<Kept> gone;
    kept_.with([&](auto& kept) {
        const auto dead = std::partition(kept.begin(), kept.end(), [](const Kept& one) {
            return one.process == nullptr || !has_ended(*one.process);
        });
        std::move(dead, kept.end(), std::back_inserter(gone));
        kept.erase(dead, kept.end());
    });
}

DeferredFreesUse DeferredFrees::use() const {
    return kept_.with([](const auto& kept) {
        DeferredFreesUse use;
        for (const Kept& one : kept) {
            ++use.blocks;
            use.bytes += one.block->bytes();
        }
        return use;
    });
}

std::shared_ptr<const UniqueFd> watch_process(int pid) {
    if (pid <= 0) return nullptr;
    UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    return fd ? std::make_shared<const UniqueFd>(std::move(fd)) : nullptr;
}

}  // namespace shared_tensor::tensor
