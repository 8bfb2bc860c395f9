#pragma once

// Reads and writes the values of requests and answers.
//
// A ValueReader reads one received value, a ValueWriter writes one value; Codec<T> does both for a C++ type.
// ValueSource and ValueSink hide how values are stored. So this header needs no JSON or tensor library, and a plugin
// does not have to link to the library.
//
// Ownership: readers and writers are views. They own nothing and must not outlive the call that passed them.
// Thread safety: one thread at a time for one value.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace shared_tensor {

class TensorRef;  // <shared_tensor/tensor_ref.hpp>

/// The kind of a received value.
enum class Kind { null, boolean, integer, unsigned_integer, number, string, array, object, tensor, handle, unknown };

/// A value does not fit the wanted type. `path` is the place inside the parameter ("[2].name"; empty: the parameter
/// itself). The caller of a shared function gets it as -32602 with parameter, expected and got.
class [[gnu::visibility("default")]] InvalidValue : public std::invalid_argument {
public:
    InvalidValue(std::string where, std::string wanted, std::string found)
        : std::invalid_argument((where.empty() ? std::string("value") : where) + ": expected " + wanted + ", got " +
                                found),
          path(std::move(where)),
          expected(std::move(wanted)),
          got(std::move(found)) {}
    std::string path, expected, got;
};

/// An object that stays in the server (<shared_tensor/object.hpp>). In the server it has a value, in a client an id.
/// Immutable and reference-counted; the last owner ends it.
struct ObjectCell {
    std::string type;                ///< its name on the wire
    std::string id = {};             ///< in a client: the handle's id
    std::shared_ptr<void> value{};   ///< in the server
    const char* cpp_type = nullptr;  ///< in the server: std::type_info::name(), to be compared as text
};
using ObjectPointer = std::shared_ptr<const ObjectCell>;

/// Whether a call uses an object together with other calls, or alone.
enum class Access { concurrent, exclusive };

/// The device and dtype that a function wants for the tensors of its arguments; empty: unchanged.
struct Placement {
    std::string_view device, dtype;
};

/// Stores received values. Implemented by the library; a node is valid as long as its source.
class ValueSource {
public:
    using Node = const void*;
    virtual ~ValueSource() = default;

    virtual Kind kind(Node node) const = 0;
    virtual bool boolean(Node node) const = 0;
    virtual std::int64_t integer(Node node) const = 0;            ///< for Kind::integer
    virtual std::uint64_t unsigned_integer(Node node) const = 0;  ///< for Kind::unsigned_integer
    virtual double number(Node node) const = 0;                   ///< for any numeric kind
    virtual std::string_view string(Node node) const = 0;
    virtual std::size_t size(Node node) const = 0;  ///< for an array or object
    virtual Node element(Node node, std::size_t index) const = 0;
    virtual Node member(Node node, std::string_view key) const = 0;  ///< nullptr if there is no such member
    virtual void each_member(Node node, const std::function<void(std::string_view, Node)>& visit) const = 0;
    /// For Kind::tensor, and for an argument of Kind::array: nested arrays of numbers are a tensor, of dtype bool,
    /// int64 or float32. Throws InvalidValue if the bytes of the tensor are not available, or if the arrays are none.
    /// The result is valid as long as the source.
    virtual const TensorRef& tensor(Node node) const = 0;
    /// As tensor(), for code that does not support devices: copies an argument from a GPU to host memory, unless the
    /// function asks for a GPU.
    virtual TensorRef plain_tensor(Node node) const;
    /// For code that makes a framework's tensors and moves them itself.
    virtual Placement placement() const { return {}; }
    /// For Kind::handle. Throws InvalidValue if the object does not exist, or no longer exists.
    virtual ObjectPointer handle(Node node, Access access) const = 0;
    /// A short description of the value for error texts ("string \"abc\"", "array of 3").
    virtual std::string describe(Node node) const = 0;
};

/// Reads one received value.
class ValueReader {
public:
    ValueReader(const ValueSource& source, ValueSource::Node node, std::string_view name = {})
        : source_(&source), node_(node), key_(name) {}

    Kind kind() const { return source_->kind(node_); }
    bool boolean() const { return source_->boolean(node_); }
    std::int64_t integer() const { return source_->integer(node_); }
    std::uint64_t unsigned_integer() const { return source_->unsigned_integer(node_); }
    double number() const { return source_->number(node_); }
    std::string_view string() const { return source_->string(node_); }
    std::size_t size() const { return source_->size(node_); }
    const TensorRef& tensor() const {
        return *placed([&] { return &source_->tensor(node_); });
    }
    TensorRef plain_tensor() const;
    ObjectPointer handle(Access access = Access::concurrent) const { return source_->handle(node_, access); }

    /// Children point to their parent for error texts, so `*this` must outlive them.
    ValueReader element(std::size_t index) const { return {*this, source_->element(node_, index), {}, index}; }
    bool has(std::string_view key) const { return source_->member(node_, key) != nullptr; }
    ValueReader member(std::string_view key) const { return {*this, source_->member(node_, key), key, kNoIndex}; }
    template <class Visit>
    void each_member(Visit visit) const {
        source_->each_member(node_, [&](std::string_view key, ValueSource::Node node) {
            visit(key, ValueReader{*this, node, key, kNoIndex});
        });
    }

    /// Throws InvalidValue with this value's path unless the value has the kind `wanted`.
    void require(Kind wanted, std::string_view expected) const {
        if (kind() != wanted) fail(expected);
    }
    [[noreturn]] void fail(std::string_view expected) const { fail(expected, source_->describe(node_)); }
    [[noreturn]] void fail(std::string_view expected, std::string got) const {
        throw InvalidValue(path(), std::string(expected), std::move(got));
    }

    std::string path() const {
        std::string text = parent_ != nullptr ? parent_->path() : std::string();
        if (index_ != kNoIndex) return text + '[' + std::to_string(index_) + ']';
        if (!key_.empty() && parent_ != nullptr && !text.empty()) text += '.';
        return text.append(key_);
    }

    const ValueSource& source() const { return *source_; }
    ValueSource::Node node() const { return node_; }

private:
    template <class Read>
    std::invoke_result_t<Read> placed(Read read) const {
        try {
            return read();
        } catch (const InvalidValue& error) {  // its path is relative to this value
            const std::string outer = path();
            const bool needs_dot = !outer.empty() && !error.path.empty() && error.path[0] != '[';
            throw InvalidValue(outer + (needs_dot ? "." : "") + error.path, error.expected, error.got);
        }
    }

    static constexpr std::size_t kNoIndex = static_cast<std::size_t>(-1);
    ValueReader(const ValueReader& parent, ValueSource::Node node, std::string_view key, std::size_t index)
        : source_(parent.source_), node_(node), parent_(&parent), key_(key), index_(index) {}

    const ValueSource* source_;
    ValueSource::Node node_;
    const ValueReader* parent_ = nullptr;
    std::string_view key_;
    std::size_t index_ = kNoIndex;
};

/// Stores written values. Implemented by the library.
class ValueSink {
public:
    using Node = void*;
    virtual ~ValueSink() = default;

    virtual void null(Node node) = 0;
    virtual void boolean(Node node, bool value) = 0;
    virtual void integer(Node node, std::int64_t value) = 0;
    virtual void unsigned_integer(Node node, std::uint64_t value) = 0;
    virtual void number(Node node, double value) = 0;  ///< NaN and infinities become strings
    virtual void number(Node node, float value) = 0;   ///< prints in the shortest form that reads back the same float
    virtual void string(Node node, std::string_view value) = 0;
    virtual void array(Node node, std::size_t size_hint) = 0;
    virtual Node append(Node node) = 0;  ///< invalidates the previous element's node
    virtual void object(Node node) = 0;
    virtual Node member(Node node, std::string_view key) = 0;
    virtual void tensor(Node node, const TensorRef& value) = 0;
    virtual void handle(Node node, const ObjectPointer& value) = 0;
    /// Only in requests: refer to the result of an earlier item of the same batch, or to a named value in the server.
    virtual void reference_to_item(Node node, std::uint64_t id) = 0;
    virtual void reference_to_name(Node node, std::string_view name) = 0;
};

/// Writes one value. The value is null until something is written.
class ValueWriter {
public:
    ValueWriter(ValueSink& sink, ValueSink::Node node) : sink_(&sink), node_(node) {}

    void null() { sink_->null(node_); }
    void boolean(bool value) { sink_->boolean(node_, value); }
    void integer(std::int64_t value) { sink_->integer(node_, value); }
    void unsigned_integer(std::uint64_t value) { sink_->unsigned_integer(node_, value); }
    void number(double value) { sink_->number(node_, value); }
    void number(float value) { sink_->number(node_, value); }
    void string(std::string_view value) { sink_->string(node_, value); }
    void tensor(const TensorRef& value) { sink_->tensor(node_, value); }
    void handle(const ObjectPointer& value) { sink_->handle(node_, value); }
    void reference_to_item(std::uint64_t id) { sink_->reference_to_item(node_, id); }
    void reference_to_name(std::string_view name) { sink_->reference_to_name(node_, name); }

    /// Writes an empty array. Then append() each element; finish an element before you append the next.
    void array(std::size_t size_hint = 0) { sink_->array(node_, size_hint); }
    ValueWriter append() { return {*sink_, sink_->append(node_)}; }
    /// Writes an empty object. Then call member() for each member.
    void object() { sink_->object(node_); }
    ValueWriter member(std::string_view key) { return {*sink_, sink_->member(node_, key)}; }

private:
    ValueSink* sink_;
    ValueSink::Node node_;
};

/// Reads, writes and describes values of type T. Specialise it for a type of your own, or use SHARED_TENSOR_FIELDS /
/// SHARED_TENSOR_ENUM (<shared_tensor/struct.hpp>) or nlohmann's macros with <shared_tensor/json.hpp>.
///
///     static T read(const ValueReader&);              // throws InvalidValue
///     static void write(ValueWriter, const T&);
///     static void schema(ValueWriter);                // a JSON Schema object
template <class T, class Enable = void>
struct Codec {};

template <class T>
concept Shareable = requires(const ValueReader& reader, ValueWriter writer, const T& value) {
    { Codec<T>::read(reader) } -> std::same_as<T>;
    Codec<T>::write(writer, value);
    Codec<T>::schema(writer);
};

}  // namespace shared_tensor

/// How to make a type usable, for the texts of compile errors.
#define SHARED_TENSOR_DETAIL_CODEC_HINT                                                                        \
    "use SHARED_TENSOR_FIELDS / SHARED_TENSOR_ENUM (<shared_tensor/struct.hpp>) or <shared_tensor/json.hpp>; " \
    "for at::Tensor include <shared_tensor/torch.hpp>"
