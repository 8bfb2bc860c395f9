#include "tensor/own_result.hpp"

#include <memory>
#include <vector>

#include "tensor/files/tensor_set.hpp"
#include "tensor/handle.hpp"
#include "tensor/transports/shared_allocation.hpp"

namespace shared_tensor::tensor {

namespace {

using Lent = std::vector<std::shared_ptr<codec::LentMemory>>;

const codec::LentMemory* lent_memory_of(const codec::TensorPointer& tensor, const Lent& lent) {
    for (const auto& memory : lent) {
        if (memory->shows(tensor->tensor().data())) return memory.get();
    }
    return nullptr;
}

std::uint64_t replace_by_copy(codec::TensorPointer& tensor, const TakeBlock& take) {
    tensor = copy_own_tensor(tensor, take);
    return tensor->bytes();
}

std::uint64_t own(codec::TensorPointer& tensor, const Lent& lent, bool kept) {
    if (tensor->bytes() == 0) return 0;
    if (tensor->on_device()) {
        if (kept) tensor = make_kept_handle(tensor);
        return 0;
    }
    if (const codec::LentMemory* memory = lent_memory_of(tensor, lent))
        return replace_by_copy(tensor, [&](std::uint64_t bytes) { return memory->take(bytes); });
    return kept && is_writable_by_clients(tensor->tensor().data()) ? replace_by_copy(tensor, plain_block) : 0;
}

}  // namespace

std::uint64_t own_result(codec::Value& result, const codec::LentForCall* lent, bool kept) {
    std::uint64_t copied = 0;
    {
        const Lent in_use = lent != nullptr ? lent->in_use() : Lent();
        for (codec::TensorPointer& tensor : result.tensors)
            copied += own(tensor, in_use, kept);
    }
    return lent != nullptr ? copied + lent->take_over() : copied;
}

}  // namespace shared_tensor::tensor
