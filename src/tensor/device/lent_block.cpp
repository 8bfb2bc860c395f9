#include "tensor/device/lent_block.hpp"

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

}  // namespace shared_tensor::tensor
