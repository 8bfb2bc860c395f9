#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <shared_tensor/tensor_ref.hpp>
#include <shared_tensor/value.hpp>

#include "base/concurrency/guarded.hpp"
#include "base/memory/memory_block.hpp"
#include "protocol/json_rpc/error.hpp"

namespace shared_tensor::codec {

using json_rpc::Json;

/// Memory of the sender that holds a tensor of its message: the sender can write to it at any time. Lives as long as
/// the tensor and its views. Thread safety: all methods from any thread.
class LentMemory {
public:
    virtual ~LentMemory() = default;
    virtual std::uint64_t bytes() const = 0;
    /// Whether the address is in this memory and the sender can still write there.
    virtual bool shows(const void* address) const = 0;
    /// Makes the bytes this process's own, in place: later writes of the sender are not seen. Keeps `counted` alive as
    /// long as the bytes. Returns how many bytes were copied: 0 if that was done before. Throws std::bad_alloc.
    virtual std::uint64_t take_over(std::shared_ptr<const void> counted = nullptr) = 0;
    /// Allocates memory for a copy of a part, if possible memory from which the sender gets the copy without a further
    /// copy. Throws std::bad_alloc.
    virtual MemoryBlock take(std::uint64_t bytes) const = 0;
};

/// The lent memory of one call: from its arguments and from the items of its streams.
/// Thread safety: all methods from any thread.
class LentForCall {
public:
    using Memory = std::weak_ptr<LentMemory>;
    void add(std::vector<Memory> memory);

    /// The memory that is still in use.
    std::vector<std::shared_ptr<LentMemory>> in_use() const;
    /// Takes over all memory that is still in use. Returns how many bytes were copied. Throws std::bad_alloc.
    std::uint64_t take_over() const;

private:
    Guarded<std::vector<Memory>> memory_;
};

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
    /// Like append_key() for a tensor of any size: appends the XXH3 of its bytes instead of the bytes. Reads all bytes.
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
/// The memory that the JSON takes, about.
std::uint64_t json_bytes(const Json& json);

/// Imports and describes the tensors of one message. This class is for messages without tensors: a tensor that is to be
/// read does not fit, and one that is written becomes null. src/tensor implements the others. One object per message;
/// not thread-safe.
class TensorPort {
public:
    virtual ~TensorPort() = default;
    /// `descriptor` is the value of "$tensor". Throws InvalidValue (with the path inside the descriptor) before it
    /// accesses memory that the descriptor may not refer to.
    virtual TensorPointer import(const Json& descriptor);
    virtual TensorPointer wrap(const TensorRef& tensor);
    /// The tensor itself, or a copy if it is on a GPU. Throws std::bad_alloc.
    virtual TensorRef in_host_memory(const TensorRef& tensor) { return tensor; }
    /// Appends the descriptor for the reader of this message as JSON text, and arranges that its bytes are sent.
    virtual void describe(const TensorPointer& tensor, json_rpc::LongText& out);

    /// The sender's memory of tensors imported since the last call of this function.
    virtual std::vector<std::weak_ptr<LentMemory>> take_lent() { return {}; }
    /// Calls LentMemory::take_over(), counts the copied bytes for this message, and enforces the limits of its sender.
    /// Throws std::bad_alloc, also beyond the limits.
    virtual void take_over(LentMemory& memory);
    /// Counts so many bytes among those of the sender while the result lives. Throws std::bad_alloc beyond the limits.
    virtual std::shared_ptr<const void> hold(std::uint64_t bytes);
};

/// Collects the result of a function into a Value. Nodes are `Json*` inside that Value, which must outlive the sink.
class JsonSink final : public ValueSink {
public:
    enum class References { reject, write };
    /// `port` wraps tensors and must outlive the sink. Only requests may hold references.
    JsonSink(Value& value, TensorPort& port, References references = References::reject)
        : value_(&value), port_(&port), references_(references) {}

    Node root() { return &value_->json; }

    void null(Node node) override;
    void boolean(Node node, bool value) override;
    void integer(Node node, std::int64_t value) override;
    void unsigned_integer(Node node, std::uint64_t value) override;
    void number(Node node, double value) override;
    void number(Node node, float value) override;
    void string(Node node, std::string_view value) override;
    void array(Node node, std::size_t size_hint) override;
    Node append(Node node) override;
    void object(Node node) override;
    Node member(Node node, std::string_view key) override;
    void tensor(Node node, const TensorRef& value) override;
    void handle(Node node, const ObjectPointer& value) override;
    void reference_to_item(Node node, std::uint64_t id) override;
    void reference_to_name(Node node, std::string_view name) override;

private:
    void refer(Node node, Json to) const;

    Value* value_;
    TensorPort* port_;
    References references_;
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

/// Objects with one member that are more than a plain object.
enum class Marker { none, tensor, object, reference, literal };
/// The marker of {"$tensor": ...}, {"$object": ...}, {"$ref": ...} or {"$literal": ...}.
Marker marker_of(const Json& json);

/// Calls `found(marker, place)` for each {"$tensor": ...}, {"$object": ...} and {"$ref": ...}. Does not look into them,
/// nor takes plain objects that have such a key for them.
void for_each_marked(const Json& json, const std::function<void(Marker marker, const Json& place)>& found);

/// A reference of a message cannot be resolved. Holds the error for the sender.
class Unresolved final : public std::exception {
public:
    explicit Unresolved(json_rpc::Error error) : error_(std::move(error)) {}
    const json_rpc::Error& error() const { return error_; }
    const char* what() const noexcept override { return error_.message.c_str(); }

private:
    json_rpc::Error error_;
};

/// Resolves the references of one message. One object per message; not thread-safe.
class References {
public:
    virtual ~References() = default;
    /// The value for {"$ref": `name`}, never null. Throws Unresolved.
    virtual std::shared_ptr<const Value> value(const Json& name) = 0;
    /// The object for {"$object": `handle`}, never null. Throws Unresolved.
    virtual ObjectPointer object(const Json& handle) = 0;
};

/// The id in {"item": id}, which refers to an item of a batch; null for other names.
const Json* item_in(const Json& name);

}  // namespace shared_tensor::codec
