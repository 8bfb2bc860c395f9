#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace at {
class Tensor;
}

namespace shared_tensor::codec {

using Json = nlohmann::json;

/// A tensor as this room sees it: something that can be counted and passed on. src/tensor knows what is inside.
/// Immutable; owned jointly by the Values that hold it and the replies that are being written from it.
class TensorHandle {
public:
    virtual ~TensorHandle() = default;
    virtual const at::Tensor& tensor() const = 0;
    virtual std::uint64_t bytes() const = 0;  ///< of its elements, as they would travel
    virtual bool on_device() const = 0;       ///< not in host memory
    /// Appends what makes it equal to another tensor (dtype, shape, bytes). False when it is too big for a key.
    virtual bool append_key(std::string& key) const = 0;
    /// As append_key for a tensor of any size, with the SHA-256 of its bytes in their place. Reads all of them.
    virtual void append_digest(std::string& key) const = 0;
};

using TensorPointer = std::shared_ptr<const TensorHandle>;

/// What a function yields: JSON plus tensors, not bytes. In `json`, {"$tensor": i} stands for tensors[i], and a plain
/// object that has a key starting with '$' stands inside {"$literal": {...}}.
struct Value {
    Json json;
    std::vector<TensorPointer> tensors;
};

/// Memory of a value, for bounds of retention: an estimate for the JSON, exact for the tensors.
struct ValueBytes {
    std::uint64_t host = 0;
    std::uint64_t device = 0;
};
ValueBytes memory_of(const Value& value);

/// How the tensors of one message cross. Implemented by src/tensor; one object per message, one thread at a time.
class TensorPort {
public:
    virtual ~TensorPort() = default;
    /// `descriptor` is what stands behind "$tensor". Throws InvalidValue (path inside the descriptor) before it touches
    /// memory that the descriptor does not rightly name.
    virtual TensorPointer import(const Json& descriptor) = 0;
    virtual TensorPointer wrap(const at::Tensor& tensor) = 0;
    /// The descriptor for the reader of this message; its bytes are arranged for on the way.
    virtual Json describe(const TensorPointer& tensor) = 0;
};

/// The value as it goes on the wire: placeholders replaced by descriptors of `port`.
Json encode(const Value& value, TensorPort& port);

}  // namespace shared_tensor::codec
