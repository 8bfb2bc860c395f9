#pragma once

// Tensors that are born where callers can map them, so that handing them over copies nothing. Opt-in: this header,
// alone of the library's, includes libtorch's (at::empty).
//
//     at::Tensor table(std::int64_t n) {
//         at::Tensor result = shared_tensor::empty_shared({n, n}, at::kFloat);
//         return result.fill_(1);
//     }

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <initializer_list>
#include <span>

#include <shared_tensor/context.hpp>

namespace shared_tensor {

/// An uninitialised, contiguous CPU tensor of that shape in memory that is shared with the caller of the shared
/// function that runs on this thread. As a result it is handed over without a copy, whatever its size, however often.
///
/// The memory is the server's: it goes back when the last tensor here and the last lease of a client on it have ended.
/// What the function writes after it returned the tensor is seen by those who hold it. Outside of a call, on another
/// thread than the call's, or where no memory is shared (no local channel, --max-shared-bytes reached): ordinary
/// memory, from which the result is copied or sent. Throws c10::Error when that cannot be had either.
inline at::Tensor empty_shared(std::span<const std::int64_t> sizes, at::ScalarType dtype) {
    if (const Context* context = detail::current_context; context != nullptr && context->memory() != nullptr)
        return context->memory()->empty(context->caller().principal, sizes, static_cast<int>(dtype));
    return at::empty(at::IntArrayRef(sizes.data(), sizes.size()), dtype);
}
inline at::Tensor empty_shared(std::initializer_list<std::int64_t> sizes, at::ScalarType dtype) {
    return empty_shared(std::span(sizes.begin(), sizes.size()), dtype);
}

/// The same, but those who get it write to the same memory: the function, and every client of the same principal that
/// it is a result for. Nothing orders their writes; when one is to see another's, a call must lie between. Of a result
/// that is kept (of a cached function, of a task, under an idempotency key) readers get a copy.
inline at::Tensor empty_shared_writable(std::span<const std::int64_t> sizes, at::ScalarType dtype) {
    if (const Context* context = detail::current_context; context != nullptr && context->memory() != nullptr)
        return context->memory()->empty_writable(context->caller().principal, sizes, static_cast<int>(dtype));
    return at::empty(at::IntArrayRef(sizes.data(), sizes.size()), dtype);
}
inline at::Tensor empty_shared_writable(std::initializer_list<std::int64_t> sizes, at::ScalarType dtype) {
    return empty_shared_writable(std::span(sizes.begin(), sizes.size()), dtype);
}

/// While it lives, CPU tensors of 32 KiB and more that any operator makes on this thread are born in such memory: for
/// results that come out of operators which take no `out` argument.
///
///     shared_tensor::SharedAllocationScope scope;
///     return at::matmul(x, weights);
///
/// Scopes nest. One thread: to be destroyed on the thread that made it, before the function returns. Temporaries of
/// the scope lie there too: keep it around the last operators only.
class SharedAllocationScope {
public:
    SharedAllocationScope() {
        if (const Context* context = detail::current_context; context != nullptr) memory_ = context->memory();
        if (memory_ != nullptr) memory_->enter(detail::current_context->caller().principal);
    }
    ~SharedAllocationScope() {
        if (memory_ != nullptr) memory_->leave();
    }
    SharedAllocationScope(const SharedAllocationScope&) = delete;
    SharedAllocationScope& operator=(const SharedAllocationScope&) = delete;

private:
    const detail::CallMemory* memory_ = nullptr;
};

}  // namespace shared_tensor
