#include "tensor/handle.hpp"

#include <vector>

#include "base/bytes/digest.hpp"
#include "tensor/device/devices.hpp"
#include "tensor/files/tensor_set.hpp"
#include "tensor/memory.hpp"
#include "tensor/transports/shm_transport.hpp"

namespace shared_tensor::tensor {

namespace {

class HeldTensor final : public codec::TensorHandle {
public:
    explicit HeldTensor(TensorRef tensor, bool kept = false)
        : tensor_(std::move(tensor)), on_device_(is_on_device(tensor_)), kept_(kept) {}

    const TensorRef& tensor() const override { return tensor_; }
    std::uint64_t bytes() const override { return tensor_.bytes(); }
    SharedCopy& shared_copy() const { return shared_copy_; }
    bool on_device() const override { return on_device_; }
    bool kept() const { return kept_; }

    /// Memory that clients may write to gets no key: its bytes may change before the function reads them.
    bool append_key(std::string& key) const override {
        if (bytes() > kMaxKeyBytes || on_device() || is_writable_by_clients(tensor_.data())) return false;
        const Dense values = append_kind(key);
        key.append(reinterpret_cast<const char*>(values.bytes.data()), values.bytes.size());
        return true;
    }

    void append_digest(std::string& key) const override {
        const Dense values = append_kind(key);
        const Digest::Value digest = Digest::of(values.bytes);
        key.append("xxh3:").append(reinterpret_cast<const char*>(digest.data()), digest.size());
    }

private:
    Dense append_kind(std::string& key) const {
        key.append(name_of(tensor_.dtype())).push_back('[');
        for (const std::int64_t size : tensor_.shape())
            key.append(std::to_string(size)).push_back(',');
        key.push_back(']');
        return dense(tensor_);
    }

    const TensorRef tensor_;
    mutable SharedCopy shared_copy_;
    bool on_device_;
    bool kept_;
};

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

SharedCopy* shared_copy_of(const codec::TensorHandle& handle) {
    const auto* known = dynamic_cast<const HeldTensor*>(&handle);
    return known != nullptr ? &known->shared_copy() : nullptr;
}

codec::TensorPointer make_kept_handle(const codec::TensorPointer& handle) {
    return std::make_shared<const HeldTensor>(handle->tensor(), true);
}

bool is_kept(const codec::TensorHandle& handle) {
    const auto* known = dynamic_cast<const HeldTensor*>(&handle);
    return known != nullptr && known->kept();
}

codec::TensorPointer make_handle(const TensorRef& tensor) {
    if (!tensor.defined())
        throw InvalidValue({}, "dense tensor", "an undefined tensor (return std::optional<TensorRef> for none)");
    return std::make_shared<const HeldTensor>(tensor);
}

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
