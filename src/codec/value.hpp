#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <shared_tensor/tensor_ref.hpp>
#include <shared_tensor/value.hpp>

#include "json_rpc/json_text.hpp"

namespace shared_tensor::codec {

using Json = nlohmann::json;

class LentMemory;

/// A tensor as this room sees it: something that can be counted and passed on. src/tensor knows what is inside.
/// Immutable; owned jointly by the Values that hold it and the replies that are being written from it.
class TensorHandle {
public:
    virtual ~TensorHandle() = default;
    virtual const TensorRef& tensor() const = 0;
    virtual std::uint64_t bytes() const = 0;  ///< of its elements, as they would travel
    virtual bool on_device() const = 0;       ///< not in host memory
    /// Appends what makes it equal to another tensor (dtype, shape, bytes). False when it is too big for a key.
    virtual bool append_key(std::string& key) const = 0;
    /// As append_key for a tensor of any size, with the SHA-256 of its bytes in their place. Reads all of them.
    virtual void append_digest(std::string& key) const = 0;
};

using TensorPointer = std::shared_ptr<const TensorHandle>;

/// What a function yields: JSON plus tensors and objects, not bytes or handles. In `json`, {"$tensor": i} stands for
/// tensors[i], {"$object": i} for objects[i], and a plain object that has a key starting with '$' stands inside
/// {"$literal": {...}}.
struct Value {
    Json json;
    std::vector<TensorPointer> tensors{};
    std::vector<ObjectPointer> objects{};

    bool is_plain() const { return tensors.empty() && objects.empty(); }
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
    virtual TensorPointer wrap(const TensorRef& tensor) = 0;
    /// The tensor itself, or a copy where it lies on a GPU. Throws std::bad_alloc.
    virtual TensorRef in_host_memory(const TensorRef& tensor) { return tensor; }
    /// Appends the descriptor for the reader of this message, as JSON text; its bytes are arranged for on the way.
    virtual void describe(const TensorPointer& tensor, json_rpc::LongText& out) = 0;

    /// The memory of the sender that tensors lie in which were imported since the last call of this.
    virtual std::vector<std::weak_ptr<LentMemory>> take_lent() { return {}; }
    /// LentMemory::take_over(), counted as copied for this message and within the bounds of its sender. Throws
    /// std::bad_alloc beyond them too.
    virtual void take_over(LentMemory& memory);
};

/// What stands behind "$object" for the reader of a message: a handle of its own.
using DescribeObject = std::function<Json(const ObjectPointer&)>;

/// Prints a value's JSON (json_rpc::print_json) as it goes on the wire: descriptors of `port`, and handles, in place of
/// placeholders. All that it is given must outlive it. Throws what these throw.
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

/// The same text, read again: for those who want to look at it.
Json encode(const Value& value, TensorPort& port, const DescribeObject& describe = {});

/// `found(place)` for each {"$tensor": i} and {"$object": i} of a value, none inside another.
void for_each_placeholder(const Json& json, const std::function<void(const Json& place)>& found);

}  // namespace shared_tensor::codec
