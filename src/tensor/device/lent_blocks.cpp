#include "tensor/device/lent_blocks.hpp"

#include <poll.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/system/host.hpp"
#include "tensor/handle.hpp"

namespace shared_tensor::tensor {

codec::TensorPointer LentBlock::handle() const { return make_handle(tensor_); }

namespace {

bool has_ended(const UniqueFd& process) {
    pollfd ended{process.get(), POLLIN, 0};
    return ::poll(&ended, 1, 0) > 0;
}

/// Removes the blocks that `is_over` is true for. The caller destroys them without the lock.
template <class Kept, class IsOver>
std::vector<Kept> take(std::vector<Kept>& kept, IsOver is_over) {
    const auto over = std::partition(kept.begin(), kept.end(), std::not_fn(is_over));
    std::vector<Kept> taken(std::make_move_iterator(over), std::make_move_iterator(kept.end()));
    kept.erase(over, kept.end());
    return taken;
}

}  // namespace

void DeferredFrees::keep(std::shared_ptr<const LentBlock> block, std::shared_ptr<const UniqueFd> process) {
    kept_.with([&](auto& kept) {
        if (!block->is_closed()) kept.push_back({std::move(block), std::move(process)});
    });
}

void DeferredFrees::free(const LentBlock* block) {
    const auto gone = kept_.with([&](auto& kept) {
        block->mark_closed();
        return take(kept, [&](const Kept& one) { return one.block.get() == block; });
    });
}

void DeferredFrees::sweep() {
    const auto gone = kept_.with([](auto& kept) {
        return take(kept, [](const Kept& one) { return one.process != nullptr && has_ended(*one.process); });
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

DevicePeer::DevicePeer()
    : owner_([] {
          static std::atomic<std::uint64_t> last{0};
          return ++last;
      }()) {}

std::shared_ptr<const UniqueFd> watch_process(int pid) {
    UniqueFd fd = process_descriptor(pid);
    return fd ? std::make_shared<const UniqueFd>(std::move(fd)) : nullptr;
}

}  // namespace shared_tensor::tensor
