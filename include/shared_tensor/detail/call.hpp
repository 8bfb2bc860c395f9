#pragma once

// The interface between the clients' templates and the library: Arguments writes the parameters, ResultSlot reads the
// result. Both refer to the caller's stack, and are used only before the call returns.

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/tensor_ref.hpp>
#include <shared_tensor/value.hpp>

namespace shared_tensor {

/// An argument with its parameter's name. A view: use it only inside the expression of the call.
template <class T>
struct Named {
    std::string_view name;
    const T& value;
};

/// client.call<at::Tensor>("scale", named("x", tensor), named("factor", 3.0)). Name all arguments or none.
template <class T>
Named<T> named(std::string_view name, const T& value) {
    return {name, value};
}

/// All arguments of a call as one object, for callers that learn them at run time only (bindings, the command line):
/// derive from it, and pass it in place of the arguments. It is used until the call, notify(), submit() or stream()
/// returns.
class CallArguments {
public:
    virtual bool empty() const = 0;
    /// Makes `params` an array (arguments by position) or an object (by name), and writes the arguments into it. Not
    /// called where there are none.
    virtual void write(ValueWriter params) const = 0;

protected:
    ~CallArguments() = default;
};

namespace detail {

class ResultSlot {
public:
    /// Throws InvalidValue.
    virtual void read(const ValueReader& reader) = 0;

protected:
    ~ResultSlot() = default;
};

template <class T>
inline constexpr bool kIsSpan = false;
template <class T, std::size_t N>
inline constexpr bool kIsSpan<std::span<T, N>> = true;

/// A reference to a value in the server: a type with a write_reference() that argument-dependent lookup finds.
template <class T>
concept IsReference = requires(ValueWriter writer, const T& value) {
    write_reference(writer, value);
};

template <class T>
void write_argument(ValueWriter writer, const T& value) {
    if constexpr (IsReference<T>) {
        write_reference(writer, value);
    } else if constexpr (Shareable<T>) {
        Codec<T>::write(writer, value);
    } else if constexpr (std::same_as<T, std::nullptr_t> || std::same_as<T, std::nullopt_t>) {
        writer.null();
    } else if constexpr (std::convertible_to<const T&, std::string_view>) {
        writer.string(value);
    } else if constexpr (kIsSpan<T>) {
        writer.array(value.size());
        for (const auto& element : value)
            write_argument(writer.append(), element);
    } else {
        static_assert(Shareable<T>, "call: no Codec for this argument's type: " SHARED_TENSOR_DETAIL_CODEC_HINT);
    }
}

template <class T>
inline constexpr bool kIsNamed = false;
template <class T>
inline constexpr bool kIsNamed<Named<T>> = true;

template <class... Args>
class ArgumentsOf final : public CallArguments {
    static constexpr bool kByName = sizeof...(Args) > 0 && (kIsNamed<Args> && ...);
    static_assert(kByName || !(kIsNamed<Args> || ...), "call: name all arguments with named(\"...\", value), or none");

public:
    explicit ArgumentsOf(const Args&... args) : args_(args...) {}

    bool empty() const override { return sizeof...(Args) == 0; }
    void write(ValueWriter params) const override {
        if constexpr (kByName) {
            params.object();
            std::apply([&](const auto&... arg) { (write_argument(params.member(arg.name), arg.value), ...); }, args_);
        } else {
            params.array(sizeof...(Args));
            std::apply([&](const auto&... arg) { (write_argument(params.append(), arg), ...); }, args_);
        }
    }

private:
    std::tuple<const Args&...> args_;
};

template <std::derived_from<CallArguments> All>
class ArgumentsOf<All> final : public CallArguments {
public:
    explicit ArgumentsOf(const All& all) : all_(all) {}

    bool empty() const override { return all_.empty(); }
    void write(ValueWriter params) const override { all_.write(params); }

private:
    const All& all_;
};

template <class R>
class ResultOf final : public ResultSlot {
    static_assert(Shareable<R>,
                  "call: no Codec for the result's type (views can't be results): " SHARED_TENSOR_DETAIL_CODEC_HINT);

public:
    void read(const ValueReader& reader) override { value_.emplace(Codec<R>::read(reader)); }
    R take() { return std::move(*value_); }

private:
    std::optional<R> value_;
};

/// Ignores the result. A handle is read, so that it is released.
template <>
class ResultOf<void> final : public ResultSlot {
public:
    void read(const ValueReader& reader) override {
        if (reader.kind() == Kind::handle) reader.handle();
    }
    void take() {}
};

}  // namespace detail
}  // namespace shared_tensor
