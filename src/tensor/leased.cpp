#include "tensor/leased.hpp"

#include <ATen/core/Tensor.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include <shared_tensor/tensor.hpp>

namespace shared_tensor::tensor {

namespace {

/// What a storage's memory is held by, with what the server's own tensor looks like.
struct Leased {
    c10::DataPtr memory;
    std::string lease;
    const void* data;
    c10::DimVector sizes, strides;
    c10::ScalarType type;
};

void end_of_leased(void* leased) { delete static_cast<Leased*>(leased); }

}  // namespace

void mark_as_leased(const at::Tensor& tensor, std::string lease) {
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    auto leased = std::make_unique<Leased>(Leased{{},
                                                  std::move(lease),
                                                  tensor.const_data_ptr(),
                                                  c10::DimVector(tensor.sizes()),
                                                  c10::DimVector(tensor.strides()),
                                                  tensor.scalar_type()});
    void* const data = storage->mutable_data();
    const c10::Device device = storage->device();
    Leased* const raw = leased.get();
    c10::DataPtr outer(data, leased.release(), &end_of_leased, device);
    raw->memory = storage->set_data_ptr(std::move(outer));
}

std::optional<std::string> lease_of(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return std::nullopt;
    const auto* leased = tensor.storage().data_ptr().cast_context<Leased>(&end_of_leased);
    if (leased == nullptr) return std::nullopt;
    const bool as_it_came = tensor.const_data_ptr() == leased->data && tensor.scalar_type() == leased->type &&
                            tensor.sizes() == at::IntArrayRef(leased->sizes) &&
                            tensor.strides() == at::IntArrayRef(leased->strides) && !tensor.is_conj() &&
                            !tensor.is_neg();
    return as_it_came ? std::optional(leased->lease) : std::nullopt;
}

}  // namespace shared_tensor::tensor

namespace shared_tensor {

NamedReference ref(const at::Tensor& result) {
    if (auto lease = tensor::lease_of(result)) return {std::move(*lease)};
    throw std::invalid_argument(
        "ref(): the tensor is no result as it came from a server's shared memory (it came as bytes, or is a view, a "
        "copy or a tensor of this process): pass the tensor itself, or put it under a name");
}

}  // namespace shared_tensor
