#pragma once

// A tensor without a framework. Processes exchange TensorRefs, and convert them from and to tensors of frameworks.
//
// With <shared_tensor/torch.hpp>, at::Tensor can be used wherever TensorRef can. To use another type, specialise
// TensorAdapter for it.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <shared_tensor/detail/dtype.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/value.hpp>

namespace shared_tensor {

/// The device whose memory holds a tensor's elements.
struct Device {
    enum class Kind : std::uint8_t { cpu, cuda };
    Kind kind = Kind::cpu;
    int index = 0;  ///< for a GPU: its ordinal in this process

    friend bool operator==(const Device&, const Device&) = default;
};

/// Converts another library's tensors to TensorRefs and back, both without a copy. Specialise it for the type.
///
///     static TensorRef to_ref(const T&);     // throws InvalidValue for a tensor that can't cross
///     static T from_ref(const TensorRef&);   // the TensorRef is defined()
template <class T>
struct TensorAdapter {};

class TensorRef;

template <class T>
concept AdaptedTensor = requires(const T& tensor, const TensorRef& ref) {
    { TensorAdapter<T>::to_ref(tensor) } -> std::same_as<TensorRef>;
    { TensorAdapter<T>::from_ref(ref) } -> std::same_as<T>;
};

/// A strided tensor: data pointer, dtype, shape, strides, device, and the owner of the memory.
///
/// Ownership: a handle; copies share the tensor, and its memory lives as long as the last copy. The elements may
/// change; everything else is immutable. On a GPU, the elements are complete when the earlier work of the device's
/// default stream is done.
/// Thread safety: any thread may call any method.
class TensorRef {
public:
    /// Makes an undefined tensor.
    TensorRef() = default;

    /// Returns whether only `owner` refers to the memory, so that no other code can reach it.
    using IsAlone = bool (*)(const void* owner);

    /// `shape` and `strides` count elements; empty strides: contiguous, in C order. `data` points to the first element,
    /// aligned to the element's size; it may be null only if there are no elements. `owner` keeps the memory; null: the
    /// memory outlives the tensor and all tensors that are made of it. `alone` null: other code may reach the memory.
    /// Throws std::invalid_argument for negative counts, for strides of another rank, for more bytes than std::int64_t
    /// can count, and for null data if there are elements.
    TensorRef(void* data, DType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {},
              Device device = {}, std::shared_ptr<const void> owner = {}, IsAlone alone = nullptr)
        : TensorRef(
              State{data, dtype, device, std::move(shape), std::move(strides), std::move(owner), alone, {}, 0, 0}) {}

    template <AdaptedTensor T>
    TensorRef(const T& tensor) : TensorRef(TensorAdapter<T>::to_ref(tensor)) {}  // NOLINT(*-explicit-*)
    template <AdaptedTensor T>
    operator T() const {  // NOLINT(*-explicit-*)
        return TensorAdapter<T>::from_ref(*this);
    }
    template <AdaptedTensor T>
    T as() const {
        return TensorAdapter<T>::from_ref(*this);
    }

    bool defined() const { return state_ != nullptr; }
    // Call the other methods only if defined().

    const std::byte* data() const { return static_cast<const std::byte*>(state_->data); }
    /// The maker of the tensor decides whether its elements may be written to; this class does not know.
    std::byte* mutable_data() const { return static_cast<std::byte*>(state_->data); }
    DType dtype() const { return state_->dtype; }
    Device device() const { return state_->device; }
    std::span<const std::int64_t> shape() const { return state_->shape; }
    std::span<const std::int64_t> strides() const { return state_->strides; }  ///< rank() numbers
    std::size_t rank() const { return state_->shape.size(); }
    std::uint64_t elements() const { return state_->elements; }
    std::uint64_t bytes() const { return state_->elements * size_of(state_->dtype); }  ///< without gaps
    /// Bytes from the first element to the end of the last element.
    std::uint64_t reach() const { return state_->reach; }
    bool is_contiguous() const {
        std::int64_t next = 1;
        for (std::size_t i = rank(); i-- > 0 && elements() > 0;) {
            if (state_->shape[i] != 1 && state_->strides[i] != next) return false;
            next *= state_->shape[i];
        }
        return true;
    }
    const std::shared_ptr<const void>& owner() const { return state_->owner; }

    /// Whether this is the only tensor of this process on its memory, and no other code of the process can reach the
    /// memory. Then no code of this process can write to it.
    bool is_alone() const {
        return state_.use_count() == 1 && state_->owner.use_count() == 1 && state_->is_alone != nullptr &&
               state_->is_alone(state_->owner.get());
    }

    /// The id of the lease, if a client got the tensor by a lease from a server (see ref()); else empty.
    const std::string& lease() const { return state_->lease; }
    TensorRef with_lease(std::string id) const {
        State state = *state_;
        state.lease = std::move(id);
        return TensorRef(std::move(state), Checked());
    }

    /// The bytes of a contiguous tensor with that shape. Throws the errors of the constructor.
    static std::uint64_t count_bytes(std::vector<std::int64_t> shape, DType dtype) {
        static char any = 0;
        return counted(State{&any, dtype, {}, std::move(shape), {}, {}, nullptr, {}, 0, 0}).elements * size_of(dtype);
    }
    /// Returns another view of the same memory. Parameters and errors: see the constructor.
    TensorRef view(void* data, DType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) const {
        return {data, dtype, std::move(shape), std::move(strides), device(), owner(), state_->is_alone};
    }
    /// Returns a view of the elements `first` to `last` (not included) of dimension 0. Both must lie within it.
    TensorRef slice(std::int64_t first, std::int64_t last) const {
        State state = *state_;
        state.lease.clear();
        state.shape.at(0) = last - first;
        state.data = moved(first * state.strides.at(0));
        return TensorRef(std::move(state));
    }
    /// Returns a view of element `index` of dimension 0, with one dimension less. The element must exist.
    TensorRef select(std::int64_t index) const {
        State state = *state_;
        state.lease.clear();
        state.data = moved(index * state.strides.at(0));
        state.shape.erase(state.shape.begin());
        state.strides.erase(state.strides.begin());
        return TensorRef(std::move(state));
    }

private:
    struct State {
        void* data;
        DType dtype;
        Device device;
        std::vector<std::int64_t> shape, strides;
        std::shared_ptr<const void> owner;
        IsAlone is_alone;
        std::string lease;
        std::uint64_t elements, reach;
    };
    struct Checked {};

    TensorRef(State state, Checked) : state_(std::make_shared<const State>(std::move(state))) {}
    explicit TensorRef(State state) : TensorRef(counted(std::move(state)), Checked()) {}

    void* moved(std::int64_t elements) const {
        if (state_->data == nullptr) return nullptr;
        return mutable_data() + elements * static_cast<std::int64_t>(size_of(dtype()));
    }

    [[noreturn]] static void reject(const char* what) { throw std::invalid_argument(what); }
    static std::int64_t product(std::int64_t a, std::int64_t b) {
        if (__builtin_mul_overflow(a, b, &a)) reject("a tensor has more bytes than can be counted");
        return a;
    }
    /// Checks the caller's values, and computes strides, elements and reach.
    static State counted(State state) {
        const bool is_contiguous = state.strides.empty();
        if (!is_contiguous && state.strides.size() != state.shape.size())
            reject("a tensor has as many strides as it has dimensions");
        state.strides.resize(state.shape.size());
        std::int64_t next = 1, last = 0, elements = 1;
        for (std::size_t i = state.shape.size(); i-- > 0;) {
            if (state.shape[i] < 0) reject("the dimensions of a tensor cannot be negative");
            if (is_contiguous) state.strides[i] = next;
            if (state.strides[i] < 0) reject("a tensor's strides cannot be negative: make a contiguous copy of it");
            const std::int64_t size = std::max<std::int64_t>(state.shape[i], 1);
            next = product(next, size);
            elements *= state.shape[i];
            if (__builtin_add_overflow(last, product(size - 1, state.strides[i]), &last)) last = product(INT64_MAX, 2);
        }
        const auto item = static_cast<std::int64_t>(size_of(state.dtype));
        static_cast<void>(product(next, item));
        if (__builtin_add_overflow(last, 1, &last)) last = product(INT64_MAX, 2);
        const std::int64_t reach = product(last, item);
        if (state.data == nullptr && elements > 0) reject("a tensor that has elements has no memory");
        state.elements = static_cast<std::uint64_t>(elements);
        state.reach = elements == 0 ? 0 : static_cast<std::uint64_t>(reach);
        return state;
    }

    std::shared_ptr<const State> state_;
};

inline TensorRef ValueSource::plain_tensor(Node node) const { return tensor(node); }
inline TensorRef ValueReader::plain_tensor() const {
    return placed([&] { return source_->plain_tensor(node_); });
}

namespace detail {

/// "cpu", "cuda:1".
inline std::string text_of(Device device) {
    return device.kind == Device::Kind::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

/// Reads a tensor without moving or converting it. Throws InvalidValue if it is not on the device or not of the dtype
/// that the function asked for.
inline TensorRef unmoved_tensor(const ValueReader& reader) {
    const Placement wanted = reader.source().placement();
    TensorRef tensor = reader.plain_tensor();
    const std::string device(wanted.device == "cuda" ? "cuda:0" : wanted.device), here = text_of(tensor.device());
    if (!device.empty() && device != here) reader.fail("a tensor on " + device, "one on " + here);
    const std::string dtype(wanted.dtype), numbers(name_of(tensor.dtype()));
    if (!dtype.empty() && is_floating_point(tensor.dtype()) && dtype != numbers)
        reader.fail("a tensor of " + dtype, "one of " + numbers);
    return tensor;
}

}  // namespace detail

/// Converts a framework's dtypes to DType. With it, functions like empty_in_shared_memory() take the framework's dtypes
/// and return its tensors.
///
///     using Tensor = ...;                   // with a TensorAdapter
///     static DType to_dtype(T);             // throws InvalidValue for a dtype that can't cross
template <class T>
struct DTypeAdapter {};
template <>
struct DTypeAdapter<DType> {
    using Tensor = TensorRef;
    static DType to_dtype(DType dtype) { return dtype; }
};

/// Passes as an argument the server's own tensor that `result` views. Nothing is copied or sent. Writes of this process
/// to `result` have no effect on the argument. Keep `result` until the call is over.
/// Throws std::invalid_argument for any other tensor: a view or copy of a result, or a result that came as bytes (from
/// another host).
inline NamedReference ref(const TensorRef& result) {
    if (result.defined() && !result.lease().empty()) return {result.lease()};
    throw std::invalid_argument(
        "ref(): the tensor is not a result in a server's shared memory (it came as bytes, or is a view, a copy or a "
        "tensor of this process): pass the tensor itself, or put it under a name");
}

template <class T>
requires std::same_as<T, TensorRef> || AdaptedTensor<T>
struct Codec<T> {
    static T read(const ValueReader& reader) {
        if (reader.kind() != Kind::array) reader.require(Kind::tensor, "tensor");
        if constexpr (requires(const TensorRef& ref) { TensorAdapter<T>::placed(ref, Placement()); }) {
            return TensorAdapter<T>::placed(reader.tensor(), reader.source().placement());
        } else {
            return detail::unmoved_tensor(reader);
        }
    }
    static void write(ValueWriter writer, const T& value) { writer.tensor(value); }
    static void schema(ValueWriter writer) {
        writer.object();
        writer.member("$ref").string("#/components/schemas/Tensor");
    }
};

}  // namespace shared_tensor
