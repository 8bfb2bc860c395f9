#pragma once

// Tensors in host memory for tests without torch, and messages that carry one tensor.

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/handle.hpp"
#include "tensor/memory.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::test {

template <class T>
constexpr DType dtype_of() {
    if constexpr (std::same_as<T, bool>) return DType::bool_;
    constexpr std::size_t kLog = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    const DType first = std::unsigned_integral<T> ? DType::uint8 : std::integral<T> ? DType::int8 : DType::float16;
    if constexpr (std::floating_point<T>) return sizeof(T) == 4 ? DType::float32 : DType::float64;
    return static_cast<DType>(static_cast<std::size_t>(first) + kLog);
}

inline TensorRef zeros(DType dtype, const tensor::Shape& shape) {
    TensorRef made = tensor::allocate(dtype, shape);
    const auto bytes = tensor::mutable_bytes(made);
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    return made;
}

/// A tensor of these elements; without `shape` it has one dimension.
template <class T>
TensorRef tensor_of(const std::vector<T>& elements, const tensor::Shape& shape = {-1}) {
    const bool flat = shape == tensor::Shape{-1};
    TensorRef made =
        tensor::allocate(dtype_of<T>(), flat ? tensor::Shape{static_cast<std::int64_t>(elements.size())} : shape);
    auto* out = reinterpret_cast<T*>(made.mutable_data());
    std::copy(elements.begin(), elements.end(), out);
    return made;
}

/// The numbers 0, 1, 2, ... in C order, which wrap around in a narrow type.
template <class T>
TensorRef arange(const tensor::Shape& shape) {
    std::vector<T> elements(static_cast<std::size_t>(tensor::extent_of(shape, {}, 1)->elements));
    for (std::size_t i = 0; i < elements.size(); ++i)
        elements[i] = static_cast<T>(i);
    return tensor_of(elements, shape);
}

/// A tensor of any dtype whose bytes are 0, 1, 2, ...; of bools they are 0 and 1 in turn.
inline TensorRef numbered(DType dtype, const tensor::Shape& shape) {
    TensorRef made = tensor::allocate(dtype, shape);
    std::size_t i = 0;
    for (std::byte& byte : tensor::mutable_bytes(made))
        byte = static_cast<std::byte>(dtype == DType::bool_ ? i++ % 2 : i++);
    return made;
}

/// Views of the same memory.
inline TensorRef strided(const TensorRef& tensor, tensor::Shape shape, tensor::Shape strides = {}) {
    return tensor.view(tensor.mutable_data(), tensor.dtype(), std::move(shape), std::move(strides));
}
inline TensorRef transposed(const TensorRef& tensor) {
    return strided(tensor, {tensor.shape().rbegin(), tensor.shape().rend()},
                   {tensor.strides().rbegin(), tensor.strides().rend()});
}

/// The elements in C order, wherever they are.
template <class T>
std::vector<T> elements_of(const TensorRef& tensor) {
    std::vector<T> elements(static_cast<std::size_t>(tensor.bytes()) / sizeof(T));
    tensor::copy_elements(tensor, reinterpret_cast<std::byte*>(elements.data()));
    return elements;
}
inline std::string bytes_of(const TensorRef& tensor) {
    const auto bytes = elements_of<char>(tensor);
    return {bytes.data(), bytes.size()};
}

/// Same dtype, shape and bytes, NaNs and signs of zero included.
inline bool identical(const TensorRef& a, const TensorRef& b) {
    return a.dtype() == b.dtype() && std::ranges::equal(a.shape(), b.shape()) &&
           elements_of<char>(a) == elements_of<char>(b);
}

/// A message with one tensor, as it lies in memory after it crossed: JSON text and a body.
struct Message {
    std::string json;
    std::shared_ptr<std::vector<std::byte>> body;
    std::string summary;  ///< of the side that sent it

    tensor::Incoming incoming() const { return {*body, body}; }
};

inline tensor::ExportPolicy accepting(std::vector<tensor::TransportKind> transports) {
    tensor::ExportPolicy policy;
    policy.accept = std::move(transports);
    return policy;
}
inline tensor::ExportPolicy only(tensor::TransportKind transport) { return accepting({transport}); }

inline Message send(const TensorRef& tensor, tensor::ExportPolicy policy) {
    tensor::TensorTransfer transfer({}, std::move(policy));
    const codec::Json json = transfer.describe(transfer.wrap(tensor));
    Message message{json.dump(), std::make_shared<std::vector<std::byte>>(), transfer.summary()};
    for (const auto& part : transfer.body().parts())
        message.body->insert(message.body->end(), part.bytes.begin(), part.bytes.end());
    return message;
}
/// The tensor that the other side gets.
inline TensorRef receive(const Message& message) {
    return tensor::TensorTransfer(message.incoming()).import(codec::Json::parse(message.json))->tensor();
}

}  // namespace shared_tensor::test
