#include "tensor/device/lent_blocks.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "tensor/handle.hpp"

namespace shared_tensor::tensor {

void Exports::add(const IpcBytes& handle, const DevicePlace& place) {
    own_.with([&](auto& own) {
        Own& one = own[handle];
        one = {place.base, place.block_bytes, place.generation, one.count + 1};
    });
}

void Exports::remove(const IpcBytes& handle) {
    own_.with([&](auto& own) {
        const auto found = own.find(handle);
        if (found != own.end() && --found->second.count == 0) own.erase(found);
    });
}

std::optional<Exports::Own> Exports::find(const IpcBytes& handle) const {
    return own_.with([&](const auto& own) -> std::optional<Own> {
        const auto found = own.find(handle);
        return found == own.end() ? std::nullopt : std::optional(found->second);
    });
}

codec::TensorPointer LentBlock::handle() const { return make_handle(tensor_); }

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
