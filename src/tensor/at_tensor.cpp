#include "tensor/at_tensor.hpp"

#include <ATen/core/Tensor.h>

#include <shared_tensor/value.hpp>

#include "tensor/devices/devices.hpp"
#include "tensor/memory.hpp"
#include "tensor/shared_allocation.hpp"
#include "util/sha256.hpp"

namespace shared_tensor::tensor {

namespace {

class AtTensor final : public codec::TensorHandle {
public:
    explicit AtTensor(at::Tensor tensor, bool kept = false)
        : tensor_(std::move(tensor)),
          bytes_(static_cast<std::uint64_t>(tensor_.numel()) * tensor_.itemsize()),
          on_device_(is_on_device(tensor_)),
          kept_(kept) {}

    const at::Tensor& tensor() const override { return tensor_; }
    std::uint64_t bytes() const override { return bytes_; }
    SharedCopy& shared_copy() const { return shared_copy_; }
    bool on_device() const override { return on_device_; }
    bool kept() const { return kept_; }

    /// What clients may write to has other bytes when the function reads it.
    bool append_key(std::string& key) const override {
        if (bytes_ > kMaxKeyBytes || on_device() || is_writable_by_clients(tensor_)) return false;
        const Dense values = append_kind(key);
        key.append(reinterpret_cast<const char*>(values.bytes.data()), values.bytes.size());
        return true;
    }

    void append_digest(std::string& key) const override {
        const Dense values = append_kind(key);
        const Sha256 digest = sha256_of(values.bytes);
        key.append("sha256:").append(reinterpret_cast<const char*>(digest.data()), digest.size());
    }

private:
    Dense append_kind(std::string& key) const {
        const DType dtype = tensor::dtype_of(tensor_);
        key.append(name_of(dtype)).push_back('[');
        for (const std::int64_t size : tensor_.sizes())
            key.append(std::to_string(size)).push_back(',');
        key.push_back(']');
        return dense(tensor_, dtype);
    }

    at::Tensor tensor_;
    std::uint64_t bytes_;
    mutable SharedCopy shared_copy_;
    bool on_device_;
    bool kept_;
};

/// What a tensor is that can't cross, with the way out; empty if it can.
std::string obstacle(const at::Tensor& tensor) {
    if (!tensor.defined()) return "an undefined tensor (return std::optional<at::Tensor> for none)";
    if (tensor.is_nested()) return "a nested tensor (call to_padded_tensor() first)";
    if (tensor.is_quantized()) return "a quantised tensor (call dequantize() first)";
    if (tensor.layout() != at::kStrided) return "a sparse tensor (call to_dense() first)";
    if (tensor.is_meta()) return "a meta tensor, which has no values";
    if (!dtype_of(tensor.scalar_type())) return std::string("a tensor of dtype ") + c10::toString(tensor.scalar_type());
    if (!tensor.has_storage()) return "a tensor without memory of its own (make a plain copy of it first)";
    return {};
}

}  // namespace

DType dtype_of(const at::Tensor& tensor) { return *dtype_of(tensor.scalar_type()); }

SharedCopy* shared_copy_of(const codec::TensorHandle& handle) {
    const auto* known = dynamic_cast<const AtTensor*>(&handle);
    return known != nullptr ? &known->shared_copy() : nullptr;
}

codec::TensorPointer make_kept_handle(const codec::TensorPointer& handle) {
    return std::make_shared<const AtTensor>(handle->tensor(), true);
}

bool is_kept(const codec::TensorHandle& handle) {
    const auto* known = dynamic_cast<const AtTensor*>(&handle);
    return known != nullptr && known->kept();
}

codec::TensorPointer make_plain_handle(const at::Tensor& tensor) { return std::make_shared<const AtTensor>(tensor); }

codec::TensorPointer make_handle(const at::Tensor& tensor) {
    if (std::string what = obstacle(tensor); !what.empty()) throw InvalidValue({}, "dense tensor", std::move(what));
    at::Tensor plain = tensor.requires_grad() ? tensor.detach() : tensor;
    if (plain.is_conj()) plain = plain.resolve_conj();
    if (plain.is_neg()) plain = plain.resolve_neg();
    if (const auto kind = Devices::of_process().holder(plain)) kind->device->hand_on(plain);
    return make_plain_handle(plain);
}

}  // namespace shared_tensor::tensor
