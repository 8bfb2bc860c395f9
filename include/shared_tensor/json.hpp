#pragma once

// Opt-in: nlohmann::json and types with nlohmann's macros (NLOHMANN_DEFINE_TYPE_*, NLOHMANN_JSON_SERIALIZE_ENUM) as
// parameters and results. They cannot contain tensors: use SHARED_TENSOR_FIELDS for a struct with tensors inside.

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <nlohmann/json.hpp>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/value.hpp>

namespace shared_tensor {

namespace detail {

inline nlohmann::json to_nlohmann(const ValueReader& reader) {
    switch (reader.kind()) {
        case Kind::null: return nullptr;
        case Kind::boolean: return reader.boolean();
        case Kind::integer: return reader.integer();
        case Kind::unsigned_integer: return reader.unsigned_integer();
        case Kind::number: return reader.number();
        case Kind::string: return std::string(reader.string());
        case Kind::array: {
            auto array = nlohmann::json::array();
            for (std::size_t i = 0; i < reader.size(); ++i)
                array.push_back(to_nlohmann(reader.element(i)));
            return array;
        }
        case Kind::object: {
            auto object = nlohmann::json::object();
            reader.each_member([&](std::string_view key, const ValueReader& member) {
                object[std::string(key)] = to_nlohmann(member);
            });
            return object;
        }
        default: reader.fail("JSON value without tensors");
    }
}

inline void from_nlohmann(ValueWriter writer, const nlohmann::json& value) {
    switch (value.type()) {
        case nlohmann::json::value_t::boolean: return writer.boolean(value.get<bool>());
        case nlohmann::json::value_t::number_integer: return writer.integer(value.get<std::int64_t>());
        case nlohmann::json::value_t::number_unsigned: return writer.unsigned_integer(value.get<std::uint64_t>());
        case nlohmann::json::value_t::number_float: return writer.number(value.get<double>());
        case nlohmann::json::value_t::string: return writer.string(value.get_ref<const std::string&>());
        case nlohmann::json::value_t::array:
            writer.array(value.size());
            for (const auto& element : value)
                from_nlohmann(writer.append(), element);
            return;
        case nlohmann::json::value_t::object:
            writer.object();
            for (const auto& [key, member] : value.items())
                from_nlohmann(writer.member(key), member);
            return;
        case nlohmann::json::value_t::binary:
        case nlohmann::json::value_t::discarded:
            throw std::invalid_argument("nlohmann::json: a " + std::string(value.is_binary() ? "binary" : "discarded") +
                                        " value is not JSON; send bytes as shared_tensor::Bytes");
        default: return writer.null();
    }
}

/// Types with a to_json and from_json of nlohmann's macros. They are found by argument-dependent lookup, so nlohmann's
/// own conversions of standard types are not found.
template <class T>
concept HasNlohmannMacro = (std::is_class_v<T> || std::is_enum_v<T>)&&!std::same_as<T, nlohmann::json> &&
                           requires(nlohmann::json & json, const nlohmann::json& source, T& value) {
    to_json(json, std::as_const(value));
    from_json(source, value);
};

}  // namespace detail

template <>
struct Codec<nlohmann::json> {
    static nlohmann::json read(const ValueReader& reader) { return detail::to_nlohmann(reader); }
    static void write(ValueWriter writer, const nlohmann::json& value) { detail::from_nlohmann(writer, value); }
    static void schema(ValueWriter writer) { writer.object(); }
};

template <class T>
requires detail::HasNlohmannMacro<T>
struct Codec<T> {
    static T read(const ValueReader& reader) {
        const nlohmann::json source = detail::to_nlohmann(reader);
        try {
            T value = source.template get<T>();
            // For an unknown text, nlohmann's macro returns the first enumerator instead of an error.
            if constexpr (std::is_enum_v<T>) {
                if (nlohmann::json(value) != source) reader.fail("one of the enumerators' names");
            }
            return value;
        } catch (const nlohmann::json::exception& error) {
            reader.fail("value that nlohmann's conversion takes", error.what());
        }
    }
    static void write(ValueWriter writer, const T& value) { detail::from_nlohmann(writer, nlohmann::json(value)); }
    static void schema(ValueWriter writer) { writer.object(); }
};

}  // namespace shared_tensor
