#pragma once

// at::Tensor as a parameter, a result, or inside of one, without a copy in either direction. It is compiled in
// your build with your libtorch (2.11 or newer). The library itself is not linked to libtorch.
//
// A tensor parameter may view memory that the call owns (the received bytes). A copy of the at::Tensor keeps this
// memory alive, as long as you like. Results share the returned tensor's memory. Only a tensor's values cross: the
// history of autograd is dropped, and lazy conjugation and negation are carried out. Sparse, quantised and nested
// tensors can't cross; the error says what to do.
//
// The functions are declared here. Where CMake's target shared_tensor::torch is linked, they are compiled once, in a
// library of their own; elsewhere they are inline.

#include <ATen/core/Tensor.h>

#include <optional>

#include <shared_tensor/detail/framework.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/shared_memory.hpp>
#include <shared_tensor/tensor_ref.hpp>

#if defined(SHARED_TENSOR_TORCH_COMPILED)
#define SHARED_TENSOR_DETAIL_TORCH
#else
#define SHARED_TENSOR_DETAIL_TORCH inline
#endif

namespace shared_tensor {

SHARED_TENSOR_DETAIL_TORCH at::ScalarType scalar_type(DType dtype);
/// Returns nullopt for a type that can't cross.
SHARED_TENSOR_DETAIL_TORCH std::optional<DType> dtype_of(at::ScalarType type);

template <>
struct TensorAdapter<at::Tensor> {
    /// On a GPU, the elements are ready for work on the device's default stream. Throws InvalidValue for a tensor that
    /// can't cross, c10::Error, and std::runtime_error for a GPU that cannot be used.
    static TensorRef to_ref(const at::Tensor& tensor);
    /// On a GPU, the elements are ready for work on this thread's current stream. Throws std::runtime_error for a GPU
    /// that cannot be used.
    static at::Tensor from_ref(const TensorRef& ref);
    /// Makes a tensor on the device and with the dtype that a shared function asked for.
    static at::Tensor placed(const TensorRef& ref, const Placement& placement);
};

template <>
struct DTypeAdapter<at::ScalarType> {
    using Tensor = at::Tensor;
    /// Throws InvalidValue for a dtype that can't cross.
    static DType to_dtype(at::ScalarType type);
};

/// As ref() of a TensorRef.
///
///     const auto weights = client.call<at::Tensor>("weights");
///     client.call<at::Tensor>("scale", ref(weights), 2.0);
SHARED_TENSOR_DETAIL_TORCH NamedReference ref(const at::Tensor& result);

namespace detail {

SHARED_TENSOR_DETAIL_TORCH extern const Framework kTorch;
[[gnu::visibility("hidden"), gnu::used]] inline const bool torch_is_known = (framework = &kTorch, true);

}  // namespace detail

/// While it lives, operators on this thread allocate CPU tensors of 32 KiB and more in memory that is shared with the
/// caller of the running shared function. Use it for results of operators that take no `out` argument.
///
///     shared_tensor::SharedMemoryScope scope;
///     return at::matmul(x, weights);
///
/// Scopes nest. Destroy a scope on the thread that made it, before the function returns. Temporary tensors are
/// allocated in shared memory too, so put only the last operators into the scope.
class [[gnu::visibility("hidden")]] SharedMemoryScope {
public:
    SharedMemoryScope();
    ~SharedMemoryScope();
    SharedMemoryScope(const SharedMemoryScope&) = delete;
    SharedMemoryScope& operator=(const SharedMemoryScope&) = delete;
};

}  // namespace shared_tensor

#if !defined(SHARED_TENSOR_TORCH_COMPILED)
#include <shared_tensor/detail/torch_adapter.hpp>
#endif
