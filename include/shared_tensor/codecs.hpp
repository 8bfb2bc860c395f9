#pragma once

// Codec<T> for types of the language and the standard library: bool, integers, floating point, strings, Bytes, vector,
// array, map, tuple, pair, optional.

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <shared_tensor/bytes.hpp>
#include <shared_tensor/value.hpp>

namespace shared_tensor {

namespace detail {

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

inline void write_type(ValueWriter& schema, std::string_view type) {
    schema.object();
    schema.member("type").string(type);
}

/// "integer from 0 to 255"
template <class T>
std::string integer_range() {
    return "integer from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
           std::to_string(std::numeric_limits<T>::max());
}

}  // namespace detail

template <>
struct Codec<bool> {
    static bool read(const ValueReader& reader) {
        reader.require(Kind::boolean, "boolean");
        return reader.boolean();
    }
    static void write(ValueWriter writer, bool value) { writer.boolean(value); }
    static void schema(ValueWriter writer) { detail::write_type(writer, "boolean"); }
};

/// The range is checked; a value is never narrowed. 3.0 is accepted as an integer, 3.5 is not. A number with a point or
/// an exponent is rejected beyond 2^53, because it may be rounded already.
template <class T>
requires(std::integral<T> && !std::same_as<T, bool>) struct Codec<T> {
    static T read(const ValueReader& reader) {
        switch (reader.kind()) {
            case Kind::integer: return checked(reader, reader.integer());
            case Kind::unsigned_integer: return checked(reader, reader.unsigned_integer());
            case Kind::number: return from_number(reader, reader.number());
            default: reader.fail(detail::integer_range<T>());
        }
    }
    static void write(ValueWriter writer, T value) {
        if constexpr (std::is_signed_v<T>) {
            writer.integer(value);
        } else {
            writer.unsigned_integer(value);
        }
    }
    static void schema(ValueWriter writer) {
        detail::write_type(writer, "integer");
        if constexpr (std::is_signed_v<T>) {
            writer.member("minimum").integer(std::numeric_limits<T>::min());
        } else {
            writer.member("minimum").integer(0);
        }
        writer.member("maximum").unsigned_integer(static_cast<std::uint64_t>(std::numeric_limits<T>::max()));
    }

private:
    template <class Wide>
    static T checked(const ValueReader& reader, Wide value) {
        if (!std::in_range<T>(value)) reader.fail(detail::integer_range<T>());
        return static_cast<T>(value);
    }
    static T from_number(const ValueReader& reader, double value) {
        constexpr double kExact = 9007199254740992.0;
        if (value != std::floor(value) || std::fabs(value) > kExact) reader.fail(detail::integer_range<T>());
        return checked(reader, static_cast<std::int64_t>(value));
    }
};

/// JSON has no NaN and no infinity; the strings "NaN", "Infinity" and "-Infinity" stand for them. A number is rounded
/// to the nearest float, and rejected if there is none. A long double is rounded to a double.
template <std::floating_point T>
struct Codec<T> {
    static T read(const ValueReader& reader) {
        switch (reader.kind()) {
            case Kind::integer:
            case Kind::unsigned_integer:
            case Kind::number: return narrowed(reader, reader.number());
            case Kind::string: return named(reader, reader.string());
            default: reader.fail("number");
        }
    }
    static void write(ValueWriter writer, T value) {
        if constexpr (std::same_as<T, long double>) {
            if (std::isfinite(value) && std::fabs(value) > std::numeric_limits<double>::max())
                throw std::invalid_argument("a long double is beyond the range of double, in which numbers are sent");
            writer.number(static_cast<double>(value));
        } else {
            writer.number(value);
        }
    }
    static void schema(ValueWriter writer) {
        writer.object();
        ValueWriter choices = writer.member("anyOf");
        choices.array(2);
        ValueWriter number = choices.append();
        detail::write_type(number, "number");
        ValueWriter names = choices.append();
        names.object();
        ValueWriter list = names.member("enum");
        list.array(3);
        for (const std::string_view name : {"NaN", "Infinity", "-Infinity"})
            list.append().string(name);
    }

private:
    static T narrowed(const ValueReader& reader, double value) {
        if constexpr (std::same_as<T, float>) {
            constexpr double kLargest = std::numeric_limits<float>::max();
            constexpr double kBeyond = 0x1.ffffffp127;  // halfway to the next power of two
            if (std::isfinite(value) && std::fabs(value) >= kBeyond) reader.fail("number within the range of float");
            if (std::isfinite(value)) value = std::clamp(value, -kLargest, kLargest);
        }
        return static_cast<T>(value);
    }
    static T named(const ValueReader& reader, std::string_view name) {
        if (name == "NaN") return std::numeric_limits<T>::quiet_NaN();
        if (name == "Infinity") return std::numeric_limits<T>::infinity();
        if (name == "-Infinity") return -std::numeric_limits<T>::infinity();
        reader.fail("number");
    }
};

template <>
struct Codec<std::string> {
    static std::string read(const ValueReader& reader) {
        reader.require(Kind::string, "string");
        return std::string(reader.string());
    }
    static void write(ValueWriter writer, const std::string& value) { writer.string(value); }
    static void schema(ValueWriter writer) { detail::write_type(writer, "string"); }
};

template <>
struct Codec<Bytes> {
    static Bytes read(const ValueReader& reader) {
        reader.require(Kind::string, "base64 string");
        auto bytes = decode_base64(reader.string());
        if (!bytes) reader.fail("base64 string (RFC 4648, padded)");
        return Bytes{std::move(*bytes)};
    }
    static void write(ValueWriter writer, const Bytes& value) { writer.string(encode_base64(value.data)); }
    static void schema(ValueWriter writer) {
        detail::write_type(writer, "string");
        writer.member("contentEncoding").string("base64");
    }
};

template <Shareable T>
struct Codec<std::optional<T>> {
    static std::optional<T> read(const ValueReader& reader) {
        if (reader.kind() == Kind::null) return std::nullopt;
        return Codec<T>::read(reader);
    }
    static void write(ValueWriter writer, const std::optional<T>& value) {
        if (value) {
            Codec<T>::write(writer, *value);
        } else {
            writer.null();
        }
    }
    static void schema(ValueWriter writer) {
        writer.object();
        ValueWriter choices = writer.member("anyOf");
        choices.array(2);
        Codec<T>::schema(choices.append());
        ValueWriter null = choices.append();
        detail::write_type(null, "null");
    }
};

template <Shareable T>
struct Codec<std::vector<T>> {
    static std::vector<T> read(const ValueReader& reader) {
        reader.require(Kind::array, "array");
        const std::size_t size = reader.size();
        std::vector<T> values;
        values.reserve(size);
        for (std::size_t i = 0; i < size; ++i)
            values.push_back(Codec<T>::read(reader.element(i)));
        return values;
    }
    static void write(ValueWriter writer, const std::vector<T>& values) {
        writer.array(values.size());
        for (const auto& value : values)
            Codec<T>::write(writer.append(), value);
    }
    static void schema(ValueWriter writer) {
        detail::write_type(writer, "array");
        Codec<T>::schema(writer.member("items"));
    }
};

template <Shareable T, std::size_t N>
struct Codec<std::array<T, N>> {
    static std::array<T, N> read(const ValueReader& reader) {
        if (reader.kind() != Kind::array || reader.size() != N) reader.fail("array of " + std::to_string(N));
        return [&]<std::size_t... I>(std::index_sequence<I...>) {
            return std::array<T, N>{Codec<T>::read(reader.element(I))...};
        }
        (std::make_index_sequence<N>());
    }
    static void write(ValueWriter writer, const std::array<T, N>& values) {
        writer.array(N);
        for (const auto& value : values)
            Codec<T>::write(writer.append(), value);
    }
    static void schema(ValueWriter writer) {
        detail::write_type(writer, "array");
        Codec<T>::schema(writer.member("items"));
        writer.member("minItems").unsigned_integer(N);
        writer.member("maxItems").unsigned_integer(N);
    }
};

namespace detail {

template <class Map>
struct MapCodec {
    using T = typename Map::mapped_type;
    static Map read(const ValueReader& reader) {
        reader.require(Kind::object, "object");
        Map values;
        reader.each_member([&](std::string_view key, const ValueReader& member) {
            values.emplace(std::string(key), Codec<T>::read(member));
        });
        return values;
    }
    static void write(ValueWriter writer, const Map& values) {
        writer.object();
        for (const auto& [key, value] : values)
            Codec<T>::write(writer.member(key), value);
    }
    static void schema(ValueWriter writer) {
        write_type(writer, "object");
        Codec<T>::schema(writer.member("additionalProperties"));
    }
};

template <class Tuple, class... T>
struct TupleCodec {
    static Tuple read(const ValueReader& reader) {
        if (reader.kind() != Kind::array || reader.size() != sizeof...(T)) {
            reader.fail("array of " + std::to_string(sizeof...(T)));
        }
        return [&]<std::size_t... I>(std::index_sequence<I...>) { return Tuple{Codec<T>::read(reader.element(I))...}; }
        (std::index_sequence_for<T...>());
    }
    static void write(ValueWriter writer, const Tuple& values) {
        writer.array(sizeof...(T));
        std::apply([&](const auto&... value) { (Codec<T>::write(writer.append(), value), ...); }, values);
    }
    static void schema(ValueWriter writer) {
        write_type(writer, "array");
        ValueWriter items = writer.member("prefixItems");
        items.array(sizeof...(T));
        (Codec<T>::schema(items.append()), ...);
        writer.member("minItems").unsigned_integer(sizeof...(T));
        writer.member("maxItems").unsigned_integer(sizeof...(T));
    }
};

}  // namespace detail

template <Shareable T>
struct Codec<std::map<std::string, T>> : detail::MapCodec<std::map<std::string, T>> {};
template <Shareable T>
struct Codec<std::unordered_map<std::string, T>> : detail::MapCodec<std::unordered_map<std::string, T>> {};
template <Shareable... T>
struct Codec<std::tuple<T...>> : detail::TupleCodec<std::tuple<T...>, T...> {};
template <Shareable A, Shareable B>
struct Codec<std::pair<A, B>> : detail::TupleCodec<std::pair<A, B>, A, B> {};

}  // namespace shared_tensor
