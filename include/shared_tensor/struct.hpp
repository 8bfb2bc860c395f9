#pragma once

// Makes structs and enums usable as parameters and results, with one line beside their definition, in its namespace:
//
//     struct Box { float x, y; at::Tensor mask; };
//     SHARED_TENSOR_FIELDS(Box, x, y, mask);             // an object {"x":..., "y":..., "mask":...}
//
//     enum class Mode { fast, exact };
//     SHARED_TENSOR_ENUM(Mode, fast, exact);             // the strings "fast", "exact"
//
// Fields of type std::optional may be left out; all other fields are required. Unknown members are rejected.

#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/value.hpp>

namespace shared_tensor {

namespace detail {

template <class T>
struct TypeTag {};

/// A visitor for requires-expressions. Not a lambda, because clang 14 accepts any call with a lambda.
struct AnyVisitor {
    template <class Field>
    void operator()(std::string_view, Field) const {}
};

template <class T>
concept HasFields = requires(TypeTag<T> tag, AnyVisitor visitor) {
    shared_tensor_fields(tag, visitor);
};

template <class T>
concept HasEnumerators = requires(TypeTag<T> tag) {
    shared_tensor_enumerators(tag);
};

/// The compiler finds the macros' functions only in the namespace of the type. For the static_assert these are
/// functions and not concepts: for a concept, compilers print every part.
template <class T>
consteval bool fields_are_found() {
    return HasFields<T>;
}
template <class T>
consteval bool enumerators_are_found() {
    return HasEnumerators<T>;
}

template <class T>
void reject_unknown_members(const ValueReader& reader) {
    reader.each_member([&](std::string_view key, const ValueReader& member) {
        bool known = false;
        shared_tensor_fields(TypeTag<T>{}, [&](std::string_view name, auto) { known = known || name == key; });
        if (!known) member.fail("no such member");
    });
}

}  // namespace detail

template <detail::HasFields T>
struct Codec<T> {
    static T read(const ValueReader& reader) {
        reader.require(Kind::object, "object");
        detail::reject_unknown_members<T>(reader);
        T value{};
        shared_tensor_fields(detail::TypeTag<T>{}, [&](std::string_view name, auto field) {
            using Field = std::remove_cvref_t<decltype(value.*field)>;
            if (!reader.has(name)) {
                if constexpr (!detail::kIsOptional<Field>) {
                    reader.fail("member \"" + std::string(name) + '"', "no such member");
                }
                return;
            }
            value.*field = Codec<Field>::read(reader.member(name));
        });
        return value;
    }
    static void write(ValueWriter writer, const T& value) {
        writer.object();
        shared_tensor_fields(detail::TypeTag<T>{}, [&](std::string_view name, auto field) {
            using Field = std::remove_cvref_t<decltype(value.*field)>;
            Codec<Field>::write(writer.member(name), value.*field);
        });
    }
    static void schema(ValueWriter writer) {
        detail::write_type(writer, "object");
        ValueWriter properties = writer.member("properties");
        properties.object();
        each_field([&]<class Field>(std::string_view name, Field*) { Codec<Field>::schema(properties.member(name)); });
        ValueWriter required = writer.member("required");
        required.array();
        each_field([&]<class Field>(std::string_view name, Field*) {
            if constexpr (!detail::kIsOptional<Field>) required.append().string(name);
        });
        writer.member("additionalProperties").boolean(false);
    }

private:
    template <class Visit>
    static void each_field(Visit visit) {
        shared_tensor_fields(detail::TypeTag<T>{}, [&]<class Field, class Base>(std::string_view name, Field Base::*) {
            visit(name, static_cast<Field*>(nullptr));
        });
    }
};

template <detail::HasEnumerators T>
requires std::is_enum_v<T>
struct Codec<T> {
    static T read(const ValueReader& reader) {
        if (reader.kind() == Kind::string) {
            for (const auto& [value, name] : shared_tensor_enumerators(detail::TypeTag<T>{})) {
                if (name == reader.string()) return value;
            }
        }
        reader.fail(choices());
    }
    static void write(ValueWriter writer, T wanted) {
        for (const auto& [value, name] : shared_tensor_enumerators(detail::TypeTag<T>{})) {
            if (value == wanted) return writer.string(name);
        }
        throw std::invalid_argument("an enumerator that SHARED_TENSOR_ENUM does not list: " +
                                    std::to_string(static_cast<long long>(wanted)));
    }
    static void schema(ValueWriter writer) {
        writer.object();
        ValueWriter names = writer.member("enum");
        names.array();
        for (const auto& [value, name] : shared_tensor_enumerators(detail::TypeTag<T>{}))
            names.append().string(name);
    }

private:
    static std::string choices() {
        std::string text = "one of";
        for (const auto& [value, name] : shared_tensor_enumerators(detail::TypeTag<T>{})) {
            text.append(" \"").append(name).append("\"");
        }
        return text;
    }
};

}  // namespace shared_tensor

// SHARED_TENSOR_DETAIL_FOR_EACH(macro, context, a, b, ...) expands to macro(context, a) macro(context, b) ...
// by rescanning (__VA_OPT__ recursion, C++20). The rescans suffice for more than 64 names.

#define SHARED_TENSOR_DETAIL_PARENS ()
#define SHARED_TENSOR_DETAIL_RESCAN(...) \
    SHARED_TENSOR_DETAIL_RESCAN3(SHARED_TENSOR_DETAIL_RESCAN3(SHARED_TENSOR_DETAIL_RESCAN3(__VA_ARGS__)))
#define SHARED_TENSOR_DETAIL_RESCAN3(...) \
    SHARED_TENSOR_DETAIL_RESCAN2(SHARED_TENSOR_DETAIL_RESCAN2(SHARED_TENSOR_DETAIL_RESCAN2(__VA_ARGS__)))
#define SHARED_TENSOR_DETAIL_RESCAN2(...) \
    SHARED_TENSOR_DETAIL_RESCAN1(SHARED_TENSOR_DETAIL_RESCAN1(SHARED_TENSOR_DETAIL_RESCAN1(__VA_ARGS__)))
#define SHARED_TENSOR_DETAIL_RESCAN1(...) \
    SHARED_TENSOR_DETAIL_RESCAN0(SHARED_TENSOR_DETAIL_RESCAN0(SHARED_TENSOR_DETAIL_RESCAN0(__VA_ARGS__)))
#define SHARED_TENSOR_DETAIL_RESCAN0(...) __VA_ARGS__

#define SHARED_TENSOR_DETAIL_FOR_EACH(macro, context, ...) \
    __VA_OPT__(SHARED_TENSOR_DETAIL_RESCAN(SHARED_TENSOR_DETAIL_FOR_EACH_STEP(macro, context, __VA_ARGS__)))
#define SHARED_TENSOR_DETAIL_FOR_EACH_STEP(macro, context, first, ...) \
    macro(context, first)                                              \
        __VA_OPT__(SHARED_TENSOR_DETAIL_FOR_EACH_AGAIN SHARED_TENSOR_DETAIL_PARENS(macro, context, __VA_ARGS__))
#define SHARED_TENSOR_DETAIL_FOR_EACH_AGAIN() SHARED_TENSOR_DETAIL_FOR_EACH_STEP

#define SHARED_TENSOR_DETAIL_CHECK_PLACE(found, macro, Type)                                                     \
    static_assert(::shared_tensor::detail::found<Type>(),                                                        \
                  macro "(" #Type ", ...) stands in the wrong place: move it into the namespace in which " #Type \
                        " is defined, after " #Type " and before its first use")

#define SHARED_TENSOR_DETAIL_FIELD(Type, field) visit(std::string_view(#field), &Type::field);

/// Names the data members of a struct that are sent (up to 64). Use it at namespace scope, in the type's namespace.
#define SHARED_TENSOR_FIELDS(Type, ...)                                                                    \
    template <class SharedTensorVisit>                                                                     \
    void shared_tensor_fields(::shared_tensor::detail::TypeTag<Type>,                                      \
                              [[maybe_unused]] SharedTensorVisit visit){SHARED_TENSOR_DETAIL_FOR_EACH(     \
        SHARED_TENSOR_DETAIL_FIELD, Type, __VA_ARGS__)} SHARED_TENSOR_DETAIL_CHECK_PLACE(fields_are_found, \
                                                                                         "SHARED_TENSOR_FIELDS", Type)

#define SHARED_TENSOR_DETAIL_ENUMERATOR(Type, name) std::pair<Type, std::string_view>{Type::name, #name},

/// Names the enumerators that are sent (up to 64), as strings. Use it at namespace scope, in the type's namespace.
#define SHARED_TENSOR_ENUM(Type, ...)                                                                         \
    inline auto shared_tensor_enumerators(::shared_tensor::detail::TypeTag<Type>) {                           \
        return std::array{SHARED_TENSOR_DETAIL_FOR_EACH(SHARED_TENSOR_DETAIL_ENUMERATOR, Type, __VA_ARGS__)}; \
    }                                                                                                         \
    SHARED_TENSOR_DETAIL_CHECK_PLACE(enumerators_are_found, "SHARED_TENSOR_ENUM", Type)
