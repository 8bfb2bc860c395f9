#pragma once

// Turns a callable into a FunctionRecord: it reads the arguments with Codec, calls the callable, and writes the result.

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/context.hpp>
#include <shared_tensor/detail/failure.hpp>
#include <shared_tensor/detail/framework.hpp>
#include <shared_tensor/detail/signature.hpp>
#include <shared_tensor/function.hpp>
#include <shared_tensor/options.hpp>
#include <shared_tensor/stream.hpp>

namespace shared_tensor::detail {

template <class Option>
inline constexpr bool kNamesParameter = false;
template <>
inline constexpr bool kNamesParameter<option::Name> = true;
template <class T>
inline constexpr bool kNamesParameter<option::Default<T>> = true;

/// Whether a value of type T may be a parameter's default: it converts, and no digits or meaning are lost.
template <class Stored, class T>
inline constexpr bool kFitsAsDefault = (std::is_convertible_v<const T&, Stored> ||
                                        (std::same_as<Stored, std::string> && std::same_as<T, std::string_view>)) &&
                                       !(std::integral<Stored> &&
                                         std::floating_point<T>)&&!(std::same_as<Stored, bool> && std::is_pointer_v<T>);
template <class Stored, class T>
inline constexpr bool kFitsAsDefault<std::optional<Stored>, T> =
    std::same_as<T, std::optional<Stored>> || std::same_as<T, std::nullopt_t> || kFitsAsDefault<Stored, T>;

template <class Apply>
void apply_option(FunctionOptions& options, const option::Option<Apply>& option) {
    option.apply(options);
}
inline void apply_option(FunctionOptions& options, execution runs) { options.runs = runs; }

/// A parameter's type, as far as it does not depend on the function.
struct ParameterType {
    Flow flow = Flow::value;
    void (*schema)(ValueWriter schema) = nullptr;  ///< of a stream: of its items
};
template <class Stored>
constexpr ParameterType parameter_type() {
    if constexpr (kIsStream<Stored>) {
        return {kIsReader<Stored> ? Flow::reader : Flow::writer,
                [](ValueWriter schema) { Codec<typename Stored::Item>::schema(schema); }};
    } else {
        return {Flow::value, [](ValueWriter schema) { Codec<Stored>::schema(schema); }};
    }
}
template <class Stored>
void write_result_schema(ValueWriter schema) {
    if constexpr (std::is_void_v<Stored>) {
        write_type(schema, "null");
    } else {
        Codec<Stored>::schema(schema);
    }
}

/// A parameter's default: a value of the parameter's type.
struct DefaultValue {
    std::shared_ptr<const void> value{};  ///< null: the parameter has no default
    void (*write)(const void* value, ValueWriter writer) = nullptr;
};
template <class Stored>
DefaultValue default_of(Stored value) {
    return {std::make_shared<const Stored>(std::move(value)), [](const void* stored, ValueWriter writer) {
                Codec<Stored>::write(writer, *static_cast<const Stored*>(stored));
            }};
}

// The templates below are instantiated for each shared function, so they hold only what depends on its types. All else
// is in classes without parameters, and in functions that are instantiated once for each type: a further function of a
// file compiles in half of the time.

class AdapterBase : public FunctionRecord {
public:
    std::string_view name() const final { return name_; }
    const FunctionOptions& options() const final { return options_; }
    std::string where() const final { return where_; }
    std::span<const ParameterInfo> parameters() const final { return parameters_; }
    void parameter_schema(std::size_t index, ValueWriter schema) const final { types_[index].schema(schema); }
    void default_value(std::size_t index, ValueWriter value) const final {
        if (const DefaultValue& one = defaults_[index]; one.value != nullptr) one.write(one.value.get(), value);
    }
    void result_schema(ValueWriter schema) const final { result_schema_(schema); }

    Binding bind(const ValueSource& source, std::span<const ValueSource::Node> nodes) const noexcept final {
        std::size_t reading = 0;
        try {
            return {bind_all(source, nodes, reading), std::nullopt};
        } catch (...) {
            return {nullptr, current_failure_noexcept(reading < parameters_.size() ? parameters_[reading].name : "")};
        }
    }

    /// Throws InvalidValue if the parameter has no default.
    const void* default_of_missing(std::size_t index) const {
        const void* const value = defaults_[index].value.get();
        if (value == nullptr) throw InvalidValue({}, "a value", "nothing");
        return value;
    }

protected:
    /// `types` must outlive the record.
    AdapterBase(std::string name, std::string where, std::span<const ParameterType> types,
                void (*write_schema)(ValueWriter))
        : parameters_(types.size()),
          defaults_(types.size()),
          name_(std::move(name)),
          where_(std::move(where)),
          types_(types),
          result_schema_(write_schema) {}

    /// Call it once names and defaults are known.
    void complete() {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            ParameterInfo& info = parameters_[i];
            if (info.name.empty()) info.name = "arg" + std::to_string(i);
            info.flow = types_[i].flow;
            info.required = info.flow == Flow::value && defaults_[i].value == nullptr;
        }
    }

    FunctionOptions options_;
    std::vector<ParameterInfo> parameters_;
    std::vector<DefaultValue> defaults_;

private:
    /// `reading` is the index of the argument that is being read.
    virtual std::unique_ptr<BoundCall> bind_all(const ValueSource& source, std::span<const ValueSource::Node> nodes,
                                                std::size_t& reading) const = 0;

    std::string name_;
    std::string where_;
    const std::span<const ParameterType> types_;
    void (*const result_schema_)(ValueWriter);
};

/// Reads an argument, or takes its default. Sets `reading` to its index.
template <class Stored>
[[gnu::noinline]] Stored read_argument(const AdapterBase& record, const ValueSource& source, ValueSource::Node node,
                                       std::size_t index, std::size_t& reading) {
    reading = index;
    if constexpr (kIsStream<Stored>) {
        return {};
    } else {
        if (node != nullptr) return Codec<Stored>::read(ValueReader(source, node));
        [[maybe_unused]] const void* const value = record.default_of_missing(index);
        if constexpr (std::is_copy_constructible_v<Stored>) {
            return *static_cast<const Stored*>(value);
        } else {
            throw InvalidValue({}, "a value: the default cannot be copied", "nothing");
        }
    }
}

template <class Stored>
[[gnu::noinline]] void write_result(ValueWriter result, const Stored& value) {
    Codec<Stored>::write(result, value);
}

/// Connects a stream to the call; does nothing for a value.
template <class Stored>
void attach([[maybe_unused]] Stored& stored, [[maybe_unused]] const Context& context,
            [[maybe_unused]] std::size_t index) {
    if constexpr (kIsStream<Stored>) {
        if (context.streams() == nullptr) throw std::logic_error("a function with streams was called without streams");
        if constexpr (kIsReader<Stored>) {
            stored = Stored(context.streams()->source(index));
        } else {
            stored = Stored(context.streams()->sink(index));
        }
    }
}

class BoundBase : public BoundCall {
public:
    std::optional<CallFailure> run(Context& context, ValueWriter result) noexcept final {
        try {
            const CurrentContext current(context);
            const auto without_grad = no_grad_ && framework != nullptr ? framework->without_grad() : nullptr;
            call(context, result);
            return std::nullopt;
        } catch (...) {
            return own(current_failure_noexcept());
        }
    }

protected:
    explicit BoundBase(bool no_grad) : no_grad_(no_grad) {}

private:
    virtual void call(Context& context, ValueWriter result) = 0;

    /// An InvalidValue from the function's own code or its result is the function's failure, not -32602.
    static CallFailure own(CallFailure failure) noexcept {
        if (failure.kind != CallFailure::Kind::invalid_params || failure.item) return failure;
        CallFailure of_function;
        try {
            of_function.type = "shared_tensor::InvalidValue";
            of_function.message = InvalidValue(failure.parameter, failure.expected, failure.got).what();
        } catch (...) {
            of_function.kind = CallFailure::Kind::out_of_memory;
        }
        return of_function;
    }

    const bool no_grad_;
};

/// How many of the first `count` options name a parameter.
constexpr std::size_t count_names(const bool* names, std::size_t count) {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count; ++i)
        sum += names[i] ? 1 : 0;
    return sum;
}

template <class F, bool kTakesContext, class R, class... P>
class Adapter final : public AdapterBase {
    using Arguments = std::tuple<typename Parameter<P>::Stored...>;
    using Indices = std::index_sequence_for<P...>;
    using Result = typename ResultRules<R>::Stored;
    static constexpr std::array<ParameterType, sizeof...(P)> kTypes{parameter_type<typename Parameter<P>::Stored>()...};

public:
    template <class... Options>
    Adapter(std::string name, std::string where, F callable, const Options&... options)
        : AdapterBase(std::move(name), std::move(where), kTypes, &write_result_schema<Result>),
          callable_(std::move(callable)) {
        static constexpr bool kNames[] = {kNamesParameter<Options>..., false};
        constexpr std::size_t kNamed = count_names(kNames, sizeof...(Options));
        static_assert(kNamed == 0 || kNamed == sizeof...(P),
                      "SHARE: name all parameters with arg(\"...\"), one each and in order (not Context&), or none");
        if constexpr (kNamed == 0 || kNamed == sizeof...(P)) {
            [&]<std::size_t... K>(std::index_sequence<K...>) { (take_option<count_names(kNames, K)>(options), ...); }
            (std::index_sequence_for<Options...>());
        }
        [this]<std::size_t... I>(std::index_sequence<I...>) { (add_default<I>(), ...); }
        (Indices());
        complete();
    }

private:
    class Bound final : public BoundBase {
    public:
        template <std::size_t... I>
        Bound(const Adapter& record, [[maybe_unused]] const ValueSource& source,
              [[maybe_unused]] std::span<const ValueSource::Node> nodes, [[maybe_unused]] std::size_t& reading,
              std::index_sequence<I...>)
            : BoundBase(record.options_.no_grad),
              callable_(record.callable_),
              arguments_{read_argument<std::tuple_element_t<I, Arguments>>(record, source, nodes[I], I, reading)...} {}

    private:
        void call(Context& context, ValueWriter result) override { call_with(context, result, Indices()); }

        template <std::size_t... I>
        void call_with([[maybe_unused]] Context& context, ValueWriter result, std::index_sequence<I...>) {
            (attach(std::get<I>(arguments_), context, I), ...);
            const auto run = [&]() -> R {
                if constexpr (kTakesContext) {
                    return callable_(context, pass<P>(std::get<I>(arguments_))...);
                } else {
                    return callable_(pass<P>(std::get<I>(arguments_))...);
                }
            };
            if constexpr (std::is_void_v<R>) {
                run();
                result.null();
            } else {
                write_result<Result>(result, run());
            }
        }

        const F& callable_;  // lives in the adapter, which outlives every call
        Arguments arguments_;
    };

    /// `I`: the parameter that an option with a name is for.
    template <std::size_t I, class Option>
    void take_option(const Option& option) {
        if constexpr (kNamesParameter<Option>) {
            parameters_[I].name = std::string(option.name);
            take_default<I>(option);
        } else {
            apply_option(options_, option);
        }
    }
    template <std::size_t I>
    void take_default(const option::Name&) {}
    template <std::size_t I, class T>
    void take_default(const option::Default<T>& option) {
        using Stored = std::tuple_element_t<I, Arguments>;
        static_assert(kFitsAsDefault<Stored, T>,
                      "SHARE: the default in arg(\"...\") = value does not fit the parameter's type");
        if constexpr (kFitsAsDefault<Stored, T>) defaults_[I] = default_of<Stored>(Stored(option.value));
    }
    /// A parameter of type std::optional may be left out.
    template <std::size_t I>
    void add_default() {
        using Stored = std::tuple_element_t<I, Arguments>;
        if constexpr (kIsOptional<Stored>) {
            if (defaults_[I].value == nullptr) defaults_[I] = default_of<Stored>(std::nullopt);
        }
    }

    std::unique_ptr<BoundCall> bind_all(const ValueSource& source, std::span<const ValueSource::Node> nodes,
                                        std::size_t& reading) const override {
        return std::unique_ptr<BoundCall>(new Bound(*this, source, nodes, reading, Indices()));
    }

    const F callable_;
};

template <class F>
struct AdapterFor {
    static_assert(Signature<F>::template kConst<F>,
                  "SHARE: several threads call it at once, so it must be callable as const: no mutable lambda");
    template <class R, class... P>
    struct Choose {
        using Type = Adapter<F, false, R, P...>;
    };
    template <class R, class First, class... P>
    requires std::same_as<First, Context&>
    struct Choose<R, First, P...> {
        using Type = Adapter<F, true, R, P...>;
    };
    using Type = typename Signature<F>::template Apply<Choose>::Type;
};

template <class F, class... Options>
std::unique_ptr<FunctionRecord> make_function_record(std::string name, std::string where, F callable,
                                                     const Options&... options) {
    return std::unique_ptr<FunctionRecord>(
        new typename AdapterFor<F>::Type(std::move(name), std::move(where), std::move(callable), options...));
}

}  // namespace shared_tensor::detail
