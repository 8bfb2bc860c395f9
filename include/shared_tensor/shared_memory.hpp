#pragma once

// Tensors that are born where callers can map them, so that handing them over copies nothing.
//
//     at::Tensor table(std::int64_t n) {  // with <shared_tensor/torch.hpp>
//         at::Tensor result = shared_tensor::empty_shared({n, n}, at::kFloat);
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

/// Where the tensors of the call that runs on this thread are born; ordinary memory where none is shared.
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
        // Counted before memory is taken: a shape that is none throws.
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
    /// Null data where there is none.
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

    const CallMemory* memory_ = nullptr;  ///< the server's
    std::string principal_;
};

}  // namespace detail

/// An uninitialised, contiguous CPU tensor of that shape in memory that is shared with the caller of the shared
/// function that runs on this thread. As a result it is handed over without a copy, whatever its size, however often.
///
/// The memory is the server's: it goes back when the last tensor here and the last lease of a client on it have ended.
/// What the function writes after it returned the tensor is seen by those who hold it. Outside of a call, on another
/// thread than the call's, or where no memory is shared (no local channel, --max-shared-bytes reached): ordinary
/// memory, from which the result is copied or sent. Throws std::bad_alloc when that cannot be had either,
/// std::invalid_argument for a shape that is none.
template <class T>
typename DTypeAdapter<T>::Tensor empty_shared(std::span<const std::int64_t> shape, T dtype) {
    return detail::SharedMemory::of_call().tensor(shape, DTypeAdapter<T>::to_dtype(dtype),
                                                  detail::CallMemory::Writers::function);
}
template <class T>
typename DTypeAdapter<T>::Tensor empty_shared(std::initializer_list<std::int64_t> shape, T dtype) {
    return empty_shared(std::span(shape.begin(), shape.size()), dtype);
}

/// The same, but those who get it write to the same memory: the function, and every client of the same principal that
/// it is a result for. Nothing orders their writes; when one is to see another's, a call must lie between. Of a result
/// that is kept (of a cached function, of a task, under an idempotency key) readers get a copy.
template <class T>
typename DTypeAdapter<T>::Tensor empty_shared_writable(std::span<const std::int64_t> shape, T dtype) {
    return detail::SharedMemory::of_call().tensor(shape, DTypeAdapter<T>::to_dtype(dtype),
                                                  detail::CallMemory::Writers::clients_too);
}
template <class T>
typename DTypeAdapter<T>::Tensor empty_shared_writable(std::initializer_list<std::int64_t> shape, T dtype) {
    return empty_shared_writable(std::span(shape.begin(), shape.size()), dtype);
}

}  // namespace shared_tensor
