#pragma once

// Makes tensors in memory that callers can map, so that a function can return them without a copy.
//
//     at::Tensor table(std::int64_t n) {  // with <shared_tensor/torch.hpp>
//         at::Tensor result = shared_tensor::empty_in_shared_memory({n, n}, at::kFloat);
//         return result.fill_(1);
//     }

#include <cstdint>
#include <initializer_list>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shared_tensor/context.hpp>
#include <shared_tensor/tensor_ref.hpp>

namespace shared_tensor {

namespace detail {

/// Allocates the tensors of the call that runs on this thread: in shared memory, or in ordinary memory if no memory is
/// shared.
class SharedMemory {
public:
    static SharedMemory of_call() {
        SharedMemory memory;
        if (current_context == nullptr) return memory;
        memory.memory_ = current_context->memory();
        if (memory.memory_ != nullptr) memory.principal_ = current_context->caller().principal;
        return memory;
    }

    TensorRef tensor(std::span<const std::int64_t> shape, DType dtype, CallMemory::Writers writers) const {
        // Before memory is allocated: it throws for an invalid shape.
        const std::uint64_t bytes = TensorRef::count_bytes({shape.begin(), shape.end()}, dtype);
        auto made = bytes > 0 ? take(bytes, writers) : CallMemory::Block{};
        return {made.data,
                dtype,
                {shape.begin(), shape.end()},
                {},
                {},
                std::move(made.owner),
                [](const void*) { return true; }};
    }
    /// Returns null data if there is no shared memory.
    CallMemory::Block block(std::size_t size) const {
        if (memory_ == nullptr) return {};
        return memory_->take(principal_, size, CallMemory::Writers::function);
    }

private:
    CallMemory::Block take(std::size_t size, CallMemory::Writers writers) const {
        if (memory_ != nullptr) {
            auto made = memory_->take(principal_, size, writers);
            if (made.data != nullptr) return made;
        }
        constexpr auto kAlignment = std::align_val_t{64};
        std::shared_ptr<void> memory(::operator new(size, kAlignment),
                                     [](void* bytes) { ::operator delete(bytes, kAlignment); });
        void* const data = memory.get();
        return {data, std::move(memory)};
    }

    const CallMemory* memory_ = nullptr;  ///< owned by the server
    std::string principal_;
};

}  // namespace detail

/// Makes an uninitialised, contiguous CPU tensor in memory that is shared with the caller of the shared function that
/// runs on this thread. The function can return it without a copy, whatever its size, any number of times.
///
/// The server owns the memory, and reuses it when the last tensor in this process and the last lease of a client on it
/// have ended. If the function writes to the tensor after it returned it, the clients that hold it see the writes.
/// Outside of a call, on another thread than the call's, or if no memory is shared (no local channel, or
/// --max-shared-bytes is reached), the tensor lies in ordinary memory, and the result is copied or sent. Throws
/// std::bad_alloc if there is no ordinary memory either, std::invalid_argument for an invalid shape.
template <class T>
typename DTypeAdapter<T>::Tensor empty_in_shared_memory(std::span<const std::int64_t> shape, T dtype) {
    return detail::SharedMemory::of_call().tensor(shape, DTypeAdapter<T>::to_dtype(dtype),
                                                  detail::CallMemory::Writers::function);
}
template <class T>
typename DTypeAdapter<T>::Tensor empty_in_shared_memory(std::initializer_list<std::int64_t> shape, T dtype) {
    return empty_in_shared_memory(std::span(shape.begin(), shape.size()), dtype);
}

/// As empty_in_shared_memory(), but the function and all clients of the same principal that get the result can write to
/// the same memory. Nothing orders their writes: a process surely sees the writes of another process only after a call
/// between them. Readers of a kept result (of a cached function, of a task, under an idempotency key) get a copy.
template <class T>
typename DTypeAdapter<T>::Tensor empty_in_writable_shared_memory(std::span<const std::int64_t> shape, T dtype) {
    return detail::SharedMemory::of_call().tensor(shape, DTypeAdapter<T>::to_dtype(dtype),
                                                  detail::CallMemory::Writers::clients_too);
}
template <class T>
typename DTypeAdapter<T>::Tensor empty_in_writable_shared_memory(std::initializer_list<std::int64_t> shape, T dtype) {
    return empty_in_writable_shared_memory(std::span(shape.begin(), shape.size()), dtype);
}

}  // namespace shared_tensor
