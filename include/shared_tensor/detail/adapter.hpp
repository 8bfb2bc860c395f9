#pragma once

// Turns a callable into a FunctionRecord: it reads the arguments with Codec, calls the callable, and writes the result.

#include <array>
#include <optional>
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
inline void apply_option(FunctionOptions&, const option::Name&) {}
template <class T>
void apply_option(FunctionOptions&, const option::Default<T>&) {}

template <class F, bool kTakesContext, class R, class... P>
class Adapter final : public FunctionRecord {
    using Arguments = std::tuple<typename Parameter<P>::Stored...>;
    using Defaults = std::tuple<std::optional<typename Parameter<P>::Stored>...>;
    using Rules = ResultRules<R>;
    static constexpr std::size_t kCount = sizeof...(P);

public:
    template <class... Options>
    Adapter(std::string name, std::string where, F callable, const Options&... options)
        : name_(std::move(name)), where_(std::move(where)), callable_(std::move(callable)) {
        constexpr std::size_t kNames = (0 + ... + std::size_t{kNamesParameter<Options>});
        static_assert(kNames == 0 || kNames == kCount,
                      "SHARE: name all parameters with arg(\"...\"), one each and in order (not Context&), or none");
        (apply_option(options_, options), ...);
        [[maybe_unused]] const auto names = std::tuple_cat(naming(options)...);
        each_parameter([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
            if constexpr (I < kNames) name_parameter<I>(std::get<I>(names));
            complete_parameter<I>();
        });
    }

    std::string_view name() const override { return name_; }
    const FunctionOptions& options() const override { return options_; }
    std::string where() const override { return where_; }
    std::span<const ParameterInfo> parameters() const override { return parameters_; }

    void parameter_schema(std::size_t index, ValueWriter schema) const override {
        each_parameter([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
            using Stored = std::tuple_element_t<I, Arguments>;
            if (I != index) return;
            if constexpr (kIsStream<Stored>) {
                Codec<typename Stored::Item>::schema(schema);
            } else {
                Codec<Stored>::schema(schema);
            }
        });
    }
    void default_value(std::size_t index, ValueWriter value) const override {
        each_parameter([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
            using Stored = std::tuple_element_t<I, Arguments>;
            if constexpr (!kIsStream<Stored>) {
                if (I == index && std::get<I>(defaults_)) Codec<Stored>::write(value, *std::get<I>(defaults_));
            }
        });
    }
    void result_schema(ValueWriter schema) const override {
        if constexpr (std::is_void_v<R>) {
            write_type(schema, "null");
        } else {
            Codec<typename Rules::Stored>::schema(schema);
        }
    }

    Binding bind(const ValueSource& source, std::span<const ValueSource::Node> nodes) const noexcept override {
        std::size_t reading = 0;
        try {
            return {bind_all(source, nodes, reading, std::index_sequence_for<P...>()), std::nullopt};
        } catch (...) {
            return {nullptr, current_failure_noexcept(storage_[reading].name)};
        }
    }

private:
    class Bound final : public BoundCall {
    public:
        Bound(const F& callable, bool no_grad, Arguments arguments)
            : callable_(callable), no_grad_(no_grad), arguments_(std::move(arguments)) {}

        std::optional<CallFailure> run(Context& context, ValueWriter result) noexcept override {
            try {
                const CurrentContext current(context);
                const auto without_grad = no_grad_ && framework != nullptr ? framework->without_grad() : nullptr;
                each_parameter([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
                    attach<I>(std::get<I>(arguments_), context);
                });
                invoke(context, result, std::index_sequence_for<P...>());
                return std::nullopt;
            } catch (...) {
                return own(current_failure_noexcept());
            }
        }

    private:
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

        template <std::size_t I, class Stored>
        static void attach(Stored& stored, const Context& context) {
            if constexpr (kIsStream<Stored>) {
                if (context.streams() == nullptr)
                    throw std::logic_error("a function with streams was called without streams");
                if constexpr (kIsReader<Stored>) {
                    stored = Stored(context.streams()->source(I));
                } else {
                    stored = Stored(context.streams()->sink(I));
                }
            }
        }

        template <std::size_t... I>
        void invoke(Context& context, ValueWriter result, std::index_sequence<I...>) {
            const auto call = [&]() -> R {
                if constexpr (kTakesContext) {
                    return callable_(context, pass<P>(std::get<I>(arguments_))...);
                } else {
                    static_cast<void>(context);
                    return callable_(pass<P>(std::get<I>(arguments_))...);
                }
            };
            if constexpr (std::is_void_v<R>) {
                call();
                result.null();
            } else {
                Codec<typename Rules::Stored>::write(result, call());
            }
        }

        const F& callable_;  // lives in the adapter, which outlives every call
        const bool no_grad_;
        Arguments arguments_;
    };

    template <class Each>
    static void each_parameter(Each each) {
        [&]<std::size_t... I>(std::index_sequence<I...>) { (each(std::integral_constant<std::size_t, I>()), ...); }
        (std::index_sequence_for<P...>());
    }

    template <class Option>
    static auto naming(const Option& option) {
        if constexpr (kNamesParameter<Option>) {
            return std::tuple<const Option&>(option);
        } else {
            return std::tuple<>();
        }
    }
    template <std::size_t I>
    void name_parameter(const option::Name& option) {
        parameters_[I].name = std::string(option.name);
    }
    template <std::size_t I, class T>
    void name_parameter(const option::Default<T>& option) {
        using Stored = std::tuple_element_t<I, Arguments>;
        static_assert(kFitsAsDefault<Stored, T>,
                      "SHARE: the default in arg(\"...\") = value does not fit the parameter's type");
        if constexpr (kFitsAsDefault<Stored, T>) std::get<I>(defaults_).emplace(option.value);
        parameters_[I].name = std::string(option.name);
    }

    template <std::size_t I>
    void complete_parameter() {
        using Stored = std::tuple_element_t<I, Arguments>;
        ParameterInfo& info = parameters_[I];
        if (info.name.empty()) info.name = "arg" + std::to_string(I);
        if constexpr (kIsOptional<Stored>) {
            if (!std::get<I>(defaults_)) std::get<I>(defaults_).emplace(std::nullopt);
        }
        info.required = !std::get<I>(defaults_).has_value() && !kIsStream<Stored>;
        if constexpr (kIsStream<Stored>) info.flow = kIsReader<Stored> ? Flow::reader : Flow::writer;
    }

    template <std::size_t... I>
    std::unique_ptr<BoundCall> bind_all([[maybe_unused]] const ValueSource& source,
                                        [[maybe_unused]] std::span<const ValueSource::Node> nodes,
                                        [[maybe_unused]] std::size_t& reading, std::index_sequence<I...>) const {
        return std::make_unique<Bound>(callable_, options_.no_grad, Arguments{read<I>(source, nodes[I], reading)...});
    }
    template <std::size_t I>
    std::tuple_element_t<I, Arguments> read(const ValueSource& source, ValueSource::Node node,
                                            std::size_t& reading) const {
        reading = I;
        if constexpr (kIsStream<std::tuple_element_t<I, Arguments>>)
            return {};
        else if (node != nullptr)
            return Codec<std::tuple_element_t<I, Arguments>>::read(ValueReader(source, node));
        if constexpr (std::is_copy_constructible_v<std::tuple_element_t<I, Arguments>>) {
            if (const auto& fallback = std::get<I>(defaults_)) return *fallback;
        }
        throw InvalidValue({}, "a value: the parameter is required", "nothing");
    }

    std::string name_;
    std::string where_;
    F callable_;
    FunctionOptions options_;
    std::array<ParameterInfo, kCount == 0 ? 1 : kCount> storage_{};
    std::span<ParameterInfo> parameters_{storage_.data(), kCount};
    Defaults defaults_;
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
    return std::make_unique<typename AdapterFor<F>::Type>(std::move(name), std::move(where), std::move(callable),
                                                          options...);
}

}  // namespace shared_tensor::detail
