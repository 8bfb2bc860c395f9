#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <shared_tensor/tensor_ref.hpp>
#include <shared_tensor/value.hpp>

#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::codec {

using Json = nlohmann::json;

class LentMemory;

/// A tensor as this module sees it; src/tensor implements it.
/// Immutable; owned jointly by the Values that hold it and the replies that are being written from it.
class TensorHandle {
public:
    virtual ~TensorHandle() = default;
    virtual const TensorRef& tensor() const = 0;
    virtual std::uint64_t bytes() const = 0;  ///< bytes of its elements as they are sent
    virtual bool on_device() const = 0;       ///< whether it is outside host memory
    /// Appends the properties that make two tensors equal (dtype, shape, bytes). False if the tensor is too large for a
    /// key.
    virtual bool append_key(std::string& key) const = 0;
    /// Like append_key() for a tensor of any size: appends the SHA-256 of its bytes instead of the bytes. Reads all
    /// bytes.
    virtual void append_digest(std::string& key) const = 0;
};

using TensorPointer = std::shared_ptr<const TensorHandle>;

/// The result of a function: JSON plus tensors and objects, not their bytes or handles. In `json`, {"$tensor": i}
/// refers to tensors[i] and {"$object": i} to objects[i]. A plain object with a key that starts with '$' is wrapped as
/// {"$literal": {...}}.
struct Value {
    Json json;
    std::vector<TensorPointer> tensors{};
    std::vector<ObjectPointer> objects{};

    bool is_plain() const { return tensors.empty() && objects.empty(); }
};

/// Memory of a value, to limit how much is kept: estimated for the JSON, exact for the tensors.
struct ValueBytes {
    std::uint64_t host = 0;
    std::uint64_t device = 0;
};
ValueBytes memory_of(const Value& value);

/// Imports and describes the tensors of one message. Implemented by src/tensor. One object per message; not
/// thread-safe.
class TensorPort {
public:
    virtual ~TensorPort() = default;
    /// `descriptor` is the value of "$tensor". Throws InvalidValue (with the path inside the descriptor) before it
    /// accesses memory that the descriptor may not refer to.
    virtual TensorPointer import(const Json& descriptor) = 0;
    virtual TensorPointer wrap(const TensorRef& tensor) = 0;
    /// The tensor itself, or a copy if it is on a GPU. Throws std::bad_alloc.
    virtual TensorRef in_host_memory(const TensorRef& tensor) { return tensor; }
    /// Appends the descriptor for the reader of this message as JSON text, and arranges that its bytes are sent.
    virtual void describe(const TensorPointer& tensor, json_rpc::LongText& out) = 0;

    /// The sender's memory of tensors imported since the last call of this function.
    virtual std::vector<std::weak_ptr<LentMemory>> take_lent() { return {}; }
    /// Calls LentMemory::take_over(), counts the copied bytes for this message, and enforces the limits of its sender.
    /// Throws std::bad_alloc, also beyond the limits.
    virtual void take_over(LentMemory& memory);
};

/// Returns the value of "$object" for the reader of a message: a handle issued to that reader.
using DescribeObject = std::function<Json(const ObjectPointer&)>;

/// Prints the JSON of a value for the wire (json_rpc::print_json), with descriptors of `port` and handles instead of
/// placeholders. All constructor arguments must outlive it. Throws what they throw.
class PlaceholderPrinter final : public json_rpc::SpecialPrinter {
public:
    PlaceholderPrinter(const Value& value, TensorPort& port, const DescribeObject& describe)
        : value_(&value), port_(&port), describe_(&describe) {}
    Did print(const Json& object, json_rpc::LongText& out) override;

private:
    const Value* value_;
    TensorPort* port_;
    const DescribeObject* describe_;
};

/// The printed text, parsed again, for callers that inspect it.
Json encode(const Value& value, TensorPort& port, const DescribeObject& describe = {});

/// Calls `found(place)` for each {"$tensor": i} and {"$object": i} of a value; none is inside another.
void for_each_placeholder(const Json& json, const std::function<void(const Json& place)>& found);

}  // namespace shared_tensor::codec
