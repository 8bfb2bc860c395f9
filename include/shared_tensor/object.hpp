#pragma once

// Objects that stay in the server: a loaded model, a tokenizer, a list of tensors. A function makes and returns an
// object; the caller gets a handle and passes it to other functions.
//
//     struct Tokenizer { ... };                              // any C++ type: it needs no Codec
//     SHARED_TENSOR_OBJECT("tokenizer", Tokenizer);          // its name on the wire, outside of all namespaces
//
//     Shared<Tokenizer> load(const std::string& path) { return make_shared_object<Tokenizer>(path); }
//     std::vector<int> split(const Shared<const Tokenizer>& t, const std::string& text) { return t->split(text); }
//     void learn(const Shared<Tokenizer>& t, const std::string& word) { t->add(word); }
//
// Calls that take Shared<const T> of one object may run at once; a call that takes Shared<T> runs alone. Calls that
// must wait stay in the queue in the order of their arrival, and hold no worker.
//
//     Object tokenizer = client.call<Object>("load", "words.txt");          // in a client
//     auto words = client.call<std::vector<int>>("split", tokenizer, "some text");
//
// An object lives as long as a client has a handle of it, a call uses it, or the server's code keeps a Shared<T>.

#include <concepts>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <shared_tensor/value.hpp>

namespace shared_tensor {

/// The name of T on the wire, kName. SHARED_TENSOR_OBJECT defines it.
template <class T>
struct ObjectType {};

template <class T>
concept HasObjectType = requires {
    { ObjectType<T>::kName } -> std::convertible_to<std::string_view>;
};

namespace detail {

inline void write_object_schema(ValueWriter schema, std::string_view type, std::string_view access) {
    schema.object();
    schema.member("type").string("object");
    ValueWriter required = schema.member("required");
    required.array(1);
    required.append().string("$object");
    if (!type.empty()) schema.member("x-object-type").string(type);
    schema.member("x-access").string(access);
}

}  // namespace detail

/// An object in the server that calls share. It is never empty, except after a move.
///
/// Ownership: reference-counted; copies and the clients' handles refer to the same object. Thread safety: as T's. The
/// server runs calls at once or alone, by their parameters (Shared<const T>, Shared<T>). It does not wait for other
/// code that keeps a Shared<T> (a static, a thread).
template <class T>
class Shared {
    using Plain = std::remove_const_t<T>;
    static_assert(std::is_object_v<T> && !std::is_pointer_v<Plain>, "Shared<T>: T is the value, no pointer to it");

public:
    /// Throws std::invalid_argument for a null pointer.
    explicit Shared(std::shared_ptr<Plain> value) : cell_(make_cell(std::move(value))) {}

    /// Converts Shared<T> to Shared<const T>.
    template <class U>
    requires(std::is_const_v<T>&& std::same_as<U, Plain>) Shared(const Shared<U>& other)  // NOLINT(*-explicit-*)
        : cell_(other.cell()) {}

    T& operator*() const { return *get(); }
    T* operator->() const { return get(); }
    T* get() const { return static_cast<Plain*>(cell_->value.get()); }

    /// Only for Codec.
    explicit Shared(ObjectPointer cell) : cell_(std::move(cell)) {}
    const ObjectPointer& cell() const { return cell_; }

private:
    static ObjectPointer make_cell(std::shared_ptr<Plain> value) {
        static_assert(HasObjectType<Plain>, "Shared<T>: name T by SHARED_TENSOR_OBJECT(\"name\", T)");
        if (value == nullptr) throw std::invalid_argument("a Shared<T> is never empty: there is no value to share");
        return std::make_shared<const ObjectCell>(
            ObjectCell{std::string(ObjectType<Plain>::kName), {}, std::move(value), typeid(Plain).name()});
    }

    ObjectPointer cell_;
};

/// Makes an object; constructs its value from `args`.
template <class T, class... Args>
Shared<T> make_shared_object(Args&&... args) {
    return Shared<T>(std::make_shared<std::remove_const_t<T>>(std::forward<Args>(args)...));
}

template <class T>
struct Codec<Shared<T>> {
    static Shared<T> read(const ValueReader& reader) {
        reader.require(Kind::handle, expected());
        ObjectPointer cell = reader.handle(std::is_const_v<T> ? Access::concurrent : Access::exclusive);
        if (cell->type != kName) reader.fail(expected(), "an object of type " + cell->type);
        if (cell->value == nullptr) reader.fail(expected() + " in this process", "a handle of another process");
        if (std::strcmp(cell->cpp_type, typeid(Plain).name()) != 0)
            reader.fail(expected(), "an object for which another plugin uses the same name");
        return Shared<T>(std::move(cell));
    }
    static void write(ValueWriter writer, const Shared<T>& value) { writer.handle(value.cell()); }
    static void schema(ValueWriter writer) {
        detail::write_object_schema(writer, kName, std::is_const_v<T> ? "concurrent" : "exclusive");
    }

private:
    using Plain = std::remove_const_t<T>;
    static constexpr std::string_view kName = ObjectType<Plain>::kName;
    static std::string expected() { return std::string("object of type ").append(kName); }
};

/// In a client: a handle of an object in the server, as a result and argument. In a server: an object of any type.
///
/// Ownership: copies are the same handle. When the last copy is destroyed, another thread releases the handle later; a
/// call that was started with it keeps the object until its end. A handle keeps the client's connections.
/// Thread safety: as std::shared_ptr.
class Object {
public:
    Object() = default;  ///< without an object; it cannot be an argument
    explicit Object(ObjectPointer cell) : cell_(std::move(cell)) {}

    /// Empty without an object.
    std::string_view type() const { return cell_ != nullptr ? std::string_view(cell_->type) : std::string_view(); }
    /// The handle's id in a client; object.list shows it.
    std::string_view id() const { return cell_ != nullptr ? std::string_view(cell_->id) : std::string_view(); }
    explicit operator bool() const { return cell_ != nullptr; }

    const ObjectPointer& cell() const { return cell_; }

private:
    ObjectPointer cell_;
};

template <>
struct Codec<Object> {
    static Object read(const ValueReader& reader) {
        reader.require(Kind::handle, "object");
        return Object(reader.handle());
    }
    static void write(ValueWriter writer, const Object& value) {
        if (!value) throw std::invalid_argument("an empty Object cannot be passed: it is no handle");
        writer.handle(value.cell());
    }
    static void schema(ValueWriter writer) { detail::write_object_schema(writer, {}, "concurrent"); }
};

/// An argument that names a value in the server: a named tensor, "set/member", or the id of a lease. The value itself
/// is not sent.
///
///     client.call<at::Tensor>("scale", ref("weights/first"), 2.0);
struct NamedReference {
    std::string name;
    friend void write_reference(ValueWriter writer, const NamedReference& value) {
        writer.reference_to_name(value.name);
    }
};
inline NamedReference ref(std::string name) { return {std::move(name)}; }

}  // namespace shared_tensor

/// SHARED_TENSOR_OBJECT("name", Type) defines the type's name on the wire. Use it at global scope. All plugins that use
/// the type must give it the same name. If two types have the same name, an object of one is rejected as the other.
#define SHARED_TENSOR_OBJECT(name, ...)                 \
    template <>                                         \
    struct shared_tensor::ObjectType<__VA_ARGS__> {     \
        static constexpr std::string_view kName = name; \
    };                                                  \
    static_assert(true, "")
