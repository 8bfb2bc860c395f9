#pragma once

// Objects that stay in the server: a loaded model, a tokenizer, a list of tensors. A function makes one and returns it,
// the caller gets a handle, and passes that to other functions.
//
//     struct Tokenizer { ... };                              // any C++ type: it needs no Codec
//     SHARED_TENSOR_OBJECT("tokenizer", Tokenizer);          // its name on the wire, outside of all namespaces
//
//     Shared<Tokenizer> load(const std::string& path) { return make_shared_object<Tokenizer>(path); }
//     std::vector<int> split(const Shared<const Tokenizer>& t, const std::string& text) { return t->split(text); }
//     void learn(const Shared<Tokenizer>& t, const std::string& word) { t->add(word); }
//
// Calls that take Shared<const T> of one object run at once; a call that takes Shared<T> has it for itself. Whoever has
// to wait does so in the queue, in the order in which the calls came, and holds no worker.
//
//     Object tokenizer = client.call<Object>("load", "words.txt");          // in a client
//     auto words = client.call<std::vector<int>>("split", tokenizer, "some text");
//
// An object lives as long as somebody has a handle of it, a call uses it, or the server's code keeps a Shared<T>.

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

/// The name of T on the wire: kName. Given by SHARED_TENSOR_OBJECT.
template <class T>
struct ObjectType {
    static constexpr bool kUnnamed = true;
};

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

/// A value of the server's that calls share. Never empty but after a move.
///
/// Ownership: joint; copies are the same object, and so are the handles that clients get of it. Thread safety: that of
/// T; the server runs the calls that take it as their parameters say. What keeps a Shared<T> elsewhere (a static, a
/// thread) is not waited for.
template <class T>
class Shared {
    using Plain = std::remove_const_t<T>;
    static_assert(std::is_object_v<T> && !std::is_pointer_v<Plain>, "Shared<T>: T is the value, no pointer to it");

public:
    /// Throws std::invalid_argument for a null pointer.
    explicit Shared(std::shared_ptr<Plain> value) : cell_(make_cell(std::move(value))) {}

    /// What may be changed may be looked at.
    template <class U>
    requires(std::is_const_v<T>&& std::same_as<U, Plain>) Shared(const Shared<U>& other)  // NOLINT(*-explicit-*)
        : cell_(other.cell()) {}

    T& operator*() const { return *get(); }
    T* operator->() const { return get(); }
    T* get() const { return static_cast<Plain*>(cell_->value.get()); }

    /// For Codec.
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

/// The value is made in place of `args`.
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
        if (cell->value == nullptr) reader.fail(expected() + " in this process", "a handle of another process's");
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

/// A handle of an object in the server, as a client's result and argument. In a server: an object of any type.
///
/// Ownership: copies are the same handle. When the last one goes, the server is told so, later and from another thread;
/// a call that was started with it has it until its end. While there is one, the client's connections stay.
/// Thread safety: that of a std::shared_ptr.
class Object {
public:
    Object() = default;  ///< no object; not to be passed
    explicit Object(ObjectPointer cell) : cell_(std::move(cell)) {}

    /// Empty for no object.
    std::string_view type() const { return cell_ != nullptr ? std::string_view(cell_->type) : std::string_view(); }
    /// Of this handle, in a client; object.list shows it.
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

/// A value that the server has under a name (a tensor put there, "set/member", or the id of a lease), as an argument:
/// it is not fetched and sent back.
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

/// SHARED_TENSOR_OBJECT("name", Type): how the type is called outside of its process. At global scope. All plugins that
/// use the type give it the same name; two types of one name are told apart, and refused.
#define SHARED_TENSOR_OBJECT(name, ...)                 \
    template <>                                         \
    struct shared_tensor::ObjectType<__VA_ARGS__> {     \
        static constexpr std::string_view kName = name; \
    };                                                  \
    static_assert(true, "")
