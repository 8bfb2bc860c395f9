#pragma once

// Converts between TensorRef and DLPack tensors without a copy: for NumPy, JAX, CuPy, ONNX Runtime, torch of another
// version. Needs <dlpack/dlpack.h> of version 1.1 or newer, or the <ATen/dlpack.h> that comes with libtorch.
//
// A DLPack tensor does not contain the stream on which its elements are made. For GPU memory, pass the stream (a
// CUstream or cudaStream_t; null: the default stream) on which the elements were made, or on which they will be used.

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#else
#include <ATen/dlpack.h>
#endif
#if !defined(DLPACK_MAJOR_VERSION) || DLPACK_MAJOR_VERSION != 1
#error "<shared_tensor/dlpack.hpp> needs DLPack 1.1 or newer"
#endif

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <shared_tensor/detail/stream_order.hpp>
#include <shared_tensor/tensor_ref.hpp>

namespace shared_tensor {

/// A CUstream or cudaStream_t; nullopt: no stream was given.
using DeviceStream = std::optional<void*>;

namespace detail {

/// In the order of DType.
inline constexpr std::array<DLDataType, kDTypes> kDLTypes{{
    {kDLBool, 8, 1},           {kDLUInt, 8, 1},
    {kDLUInt, 16, 1},          {kDLUInt, 32, 1},
    {kDLUInt, 64, 1},          {kDLInt, 8, 1},
    {kDLInt, 16, 1},           {kDLInt, 32, 1},
    {kDLInt, 64, 1},           {kDLFloat, 16, 1},
    {kDLBfloat, 16, 1},        {kDLFloat, 32, 1},
    {kDLFloat, 64, 1},         {kDLComplex, 32, 1},
    {kDLComplex, 64, 1},       {kDLComplex, 128, 1},
    {kDLFloat8_e4m3fn, 8, 1},  {kDLFloat8_e4m3fnuz, 8, 1},
    {kDLFloat8_e5m2, 8, 1},    {kDLFloat8_e5m2fnuz, 8, 1},
    {kDLFloat8_e8m0fnu, 8, 1}, {kDLFloat4_e2m1fn, 4, 2},
}};

inline DType dtype_of_dlpack(DLDataType type) {
    for (std::size_t i = 0; i < kDTypes; ++i) {
        if (kDLTypes[i].code == type.code && kDLTypes[i].bits == type.bits && kDLTypes[i].lanes == type.lanes)
            return static_cast<DType>(i);
    }
    throw std::invalid_argument("a DLPack tensor of type code " + std::to_string(type.code) + " with " +
                                std::to_string(type.bits) + " bits and " + std::to_string(type.lanes) +
                                " lanes has a dtype that can't cross");
}

inline Device device_of_dlpack(DLDevice device) {
    switch (device.device_type) {
        case kDLCPU:
        case kDLCUDAHost: return {};
        case kDLCUDA:
        case kDLCUDAManaged: return {Device::Kind::cuda, device.device_id};
        default:
            throw std::invalid_argument("a DLPack tensor lies on a device of type " +
                                        std::to_string(device.device_type) +
                                        ": only memory of the host and of CUDA can cross");
    }
}

/// `owner` keeps the memory of `tensor`.
inline TensorRef ref_of(const DLTensor& tensor, DeviceStream stream, std::shared_ptr<const void> owner) {
    if (tensor.ndim < 0) throw std::invalid_argument("a DLPack tensor has a negative number of dimensions");
    const auto rank = static_cast<std::size_t>(tensor.ndim);
    std::vector<std::int64_t> shape(tensor.shape, tensor.shape + rank), strides;
    if (tensor.strides != nullptr) strides.assign(tensor.strides, tensor.strides + rank);
    const Device device = device_of_dlpack(tensor.device);
    if (device.kind == Device::Kind::cuda) {
        if (!stream)
            throw std::invalid_argument(
                "from_dlpack: name the stream on which the elements of a GPU's tensor are made");
        order_streams(device.index, *stream, nullptr);
    }
    auto* const data = tensor.data == nullptr ? nullptr : static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
    return {data, dtype_of_dlpack(tensor.dtype), std::move(shape), std::move(strides), device, std::move(owner)};
}

/// Owns the memory that an exported DLPack tensor points to. The DLPack tensor's deleter deletes it.
template <class Managed>
struct Exported {
    explicit Exported(const TensorRef& kept)
        : ref(kept),
          shape(ref.shape().begin(), ref.shape().end()),
          strides(ref.strides().begin(), ref.strides().end()) {
        managed.dl_tensor.data = ref.mutable_data();
        managed.dl_tensor.device = {ref.device().kind == Device::Kind::cuda ? kDLCUDA : kDLCPU, ref.device().index};
        managed.dl_tensor.ndim = static_cast<std::int32_t>(shape.size());
        managed.dl_tensor.dtype = kDLTypes[static_cast<std::size_t>(ref.dtype())];
        managed.dl_tensor.shape = shape.data();
        managed.dl_tensor.strides = strides.data();
        managed.dl_tensor.byte_offset = 0;
        managed.manager_ctx = this;
        managed.deleter = [](Managed* done) { delete static_cast<Exported*>(done->manager_ctx); };
    }

    const TensorRef ref;
    std::vector<std::int64_t> shape, strides;
    Managed managed{};
};

template <class Managed>
Managed* exported(const TensorRef& tensor, DeviceStream stream) {
    if (!tensor.defined()) throw std::invalid_argument("to_dlpack: there is no tensor");
    if (tensor.device().kind == Device::Kind::cuda) {
        if (!stream)
            throw std::invalid_argument("to_dlpack: name the stream on which the elements of a GPU's tensor are used");
        order_streams(tensor.device().index, nullptr, *stream);
    }
    return &std::make_unique<Exported<Managed>>(tensor).release()->managed;
}

/// Takes over `managed`: calls its deleter (if it has one) also when this throws.
template <class Managed>
TensorRef imported(Managed* managed, DeviceStream stream) {
    if (managed == nullptr) throw std::invalid_argument("from_dlpack: there is no tensor");
    const std::shared_ptr<Managed> owner(managed, [](Managed* done) {
        if (done->deleter != nullptr) done->deleter(done);
    });
    if constexpr (requires { managed->version; }) {
        if (managed->version.major != DLPACK_MAJOR_VERSION)
            throw std::invalid_argument("from_dlpack: DLPack " + std::to_string(managed->version.major) +
                                        " is not supported: use DLPack 1");
    }
    return ref_of(managed->dl_tensor, stream, owner);
}

}  // namespace detail

/// Makes a TensorRef of a DLPack tensor. If the DLPack tensor is marked as read-only, do not write to the elements.
/// Takes over `tensor`: its deleter is called with the last view of its memory, or here if this throws.
/// Throws std::invalid_argument for a dtype, a device or strides that can't cross, for another major version of DLPack,
/// and for a missing stream; std::runtime_error if the driver fails.
inline TensorRef from_dlpack(DLManagedTensor* tensor, DeviceStream stream = std::nullopt) {
    return detail::imported(tensor, stream);
}
inline TensorRef from_dlpack(DLManagedTensorVersioned* tensor, DeviceStream stream = std::nullopt) {
    return detail::imported(tensor, stream);
}

/// Makes a DLPack tensor of a TensorRef. The caller owns the result and must call its deleter, from any thread; the
/// memory lives until then. On a GPU, later work of `stream` sees the elements complete. A caller that uses the
/// elements on another stream, or deletes the result before such work is done, must order the streams itself.
/// Throws std::invalid_argument for an undefined tensor and for a missing stream; std::runtime_error if the driver
/// fails.
inline DLManagedTensor* to_dlpack(const TensorRef& tensor, DeviceStream stream = std::nullopt) {
    return detail::exported<DLManagedTensor>(tensor, stream);
}
inline DLManagedTensorVersioned* to_dlpack_versioned(const TensorRef& tensor, DeviceStream stream = std::nullopt) {
    DLManagedTensorVersioned* const made = detail::exported<DLManagedTensorVersioned>(tensor, stream);
    made->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    return made;
}

}  // namespace shared_tensor
