#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <shared_tensor/codecs.hpp>

#include "protocol/codec/json_source.hpp"
#include "protocol/codec/value.hpp"
#include "runtime/tables/tensor_store.hpp"
#include "server/methods/rejected.hpp"

namespace shared_tensor::server {

// Types of parameters, in addition to the types that have a codec in the public headers.

template <std::int64_t kLeast, std::int64_t kMost>
struct Integer {
    std::int64_t value = 0;
};
using Milliseconds = Integer<0, std::int64_t{24} * 3600 * 1000>;
using PageSize = Integer<1, 1000>;
using Version = Integer<0, std::numeric_limits<std::int64_t>::max()>;
using NewVersion = Integer<1, static_cast<std::int64_t>(runtime::kHighestVersion)>;

/// An array of at most kMost strings of at most kMostBytes each.
template <std::size_t kMost, std::size_t kMostBytes = std::numeric_limits<std::size_t>::max()>
struct Texts {
    std::vector<std::string> list;
};

/// A string that is one of kWords.
template <const auto& kWords>
struct Word {
    std::string text;
};

/// A tensor as it was received, not converted.
struct TensorParameter {
    codec::TensorPointer tensor;
};

/// Any JSON; the method reads it itself. Valid while the method runs.
struct Unread {
    ValueReader reader;
    const json_rpc::Json& json() const { return *static_cast<const json_rpc::Json*>(reader.node()); }
};

}  // namespace shared_tensor::server

namespace shared_tensor {

template <std::int64_t kLeast, std::int64_t kMost>
struct Codec<server::Integer<kLeast, kMost>> {
    static server::Integer<kLeast, kMost> read(const ValueReader& reader) {
        if (reader.kind() == Kind::integer && in_range(reader.integer())) return {reader.integer()};
        if (reader.kind() == Kind::unsigned_integer && in_range(reader.unsigned_integer()))
            return {static_cast<std::int64_t>(reader.unsigned_integer())};
        reader.fail("integer from " + std::to_string(kLeast) + " to " + std::to_string(kMost));
    }
    static void schema(ValueWriter writer) {
        detail::write_type(writer, "integer");
        writer.member("minimum").integer(kLeast);
        writer.member("maximum").integer(kMost);
    }

private:
    template <class T>
    static bool in_range(T value) {
        return std::cmp_less_equal(kLeast, value) && std::cmp_less_equal(value, kMost);
    }
};

template <std::size_t kMost, std::size_t kMostBytes>
struct Codec<server::Texts<kMost, kMostBytes>> {
    static server::Texts<kMost, kMostBytes> read(const ValueReader& reader) {
        if (reader.kind() != Kind::array || reader.size() > kMost)
            reader.fail("array of at most " + std::to_string(kMost) + " strings");
        server::Texts<kMost, kMostBytes> texts{Codec<std::vector<std::string>>::read(reader)};
        const auto is_long = [](const std::string& text) { return text.size() > kMostBytes; };
        if (std::any_of(texts.list.begin(), texts.list.end(), is_long))
            reader.fail("strings of at most " + std::to_string(kMostBytes) + " bytes");
        return texts;
    }
    static void schema(ValueWriter writer) {
        Codec<std::vector<std::string>>::schema(writer);
        writer.member("maxItems").unsigned_integer(kMost);
    }
};

template <const auto& kWords>
struct Codec<server::Word<kWords>> {
    static server::Word<kWords> read(const ValueReader& reader) {
        for (const std::string_view word : kWords) {
            if (reader.kind() == Kind::string && reader.string() == word) return {std::string(word)};
        }
        std::string words;
        for (const std::string_view word : kWords)
            words.append(word == kWords.front() ? "" : word == kWords.back() ? " or " : ", ").append(word);
        reader.fail(words);
    }
    static void schema(ValueWriter writer) {
        detail::write_type(writer, "string");
        ValueWriter words = writer.member("enum");
        words.array();
        for (const std::string_view word : kWords)
            words.append().string(word);
    }
};

template <>
struct Codec<server::TensorParameter> {
    static server::TensorParameter read(const ValueReader& reader);
    static void write(ValueWriter writer, const server::TensorParameter& value) {
        writer.tensor(value.tensor->tensor());
    }
    static void schema(ValueWriter writer);
};

template <>
struct Codec<server::Unread> {
    static server::Unread read(const ValueReader& reader) { return {reader}; }
    static void schema(ValueWriter writer) { writer.object(); }
};

}  // namespace shared_tensor

namespace shared_tensor::server {

/// Returns the values of `params` (array, object or null) in the order of `names`; null for a value that is missing or
/// null. Throws Rejected for an unknown parameter or too many arguments.
std::vector<const json_rpc::Json*> match_parameters(std::span<const std::string_view> names,
                                                    const json_rpc::Json& params);

/// Calls `act`, which reads from `source`. Throws Rejected in place of InvalidValue and Unresolved.
void reading_from(const codec::JsonSource& source, const std::function<void()>& act);

/// Returns {"name", "required", "schema"}. `schema` writes the JSON Schema of the parameter's type.
json_rpc::Json describe_parameter(std::string_view name, bool required, void (*schema)(ValueWriter));

/// The parameters of a method: their types, each with a codec, and their names in the order of the positions. A
/// parameter of type std::optional may be left out.
template <class... T>
class Parameters {
public:
    using Names = std::array<std::string_view, sizeof...(T)>;
    explicit Parameters(const Names& names) : names_(names) {}

    /// Throws Rejected.
    std::tuple<T...> read(const codec::JsonSource& source, const json_rpc::Json& params) const {
        const auto given = match_parameters(names_, params);
        std::optional<std::tuple<T...>> values;
        reading_from(source, [&] { values.emplace(read_all(source, given, std::index_sequence_for<T...>())); });
        return std::move(*values);
    }
    /// Reads the parameters of a request without tensors. No parameter may be Unread: its source ends with this call.
    std::tuple<T...> read(const json_rpc::Json& params) const {
        codec::TensorPort port;
        return read(codec::JsonSource(port), params);
    }
    json_rpc::Json describe() const { return describe_all(std::index_sequence_for<T...>()); }

private:
    template <class V>
    struct One {
        static constexpr bool kRequired = true;
        using Type = V;
    };
    template <class V>
    struct One<std::optional<V>> {
        static constexpr bool kRequired = false;
        using Type = V;
    };

    template <std::size_t... I>
    std::tuple<T...> read_all([[maybe_unused]] const codec::JsonSource& source,
                              [[maybe_unused]] const std::vector<const json_rpc::Json*>& given,
                              std::index_sequence<I...>) const {
        return std::tuple<T...>{read_one<T>(source, names_[I], given[I])...};
    }
    template <class V>
    static V read_one(const codec::JsonSource& source, std::string_view name, const json_rpc::Json* given) {
        if (given != nullptr)
            return Codec<typename One<V>::Type>::read(ValueReader(source, codec::JsonSource::node(*given), name));
        if constexpr (One<V>::kRequired) {
            throw InvalidValue(std::string(name), "a value", "nothing");
        } else {
            return std::nullopt;
        }
    }
    template <std::size_t... I>
    json_rpc::Json describe_all(std::index_sequence<I...>) const {
        json_rpc::Json list = json_rpc::Json::array();
        (list.push_back(describe_parameter(names_[I], One<T>::kRequired, &Codec<typename One<T>::Type>::schema)), ...);
        return list;
    }

    const Names names_;
};

}  // namespace shared_tensor::server
