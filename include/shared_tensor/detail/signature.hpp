#pragma once

// The parameter and result types of a callable, and the types in which its arguments are stored before the call.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <shared_tensor/context.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/value.hpp>

namespace shared_tensor::detail {

/// A callable object for a function that is known at compile time.
template <auto Fn>
struct StaticCallable {
    template <class... Args>
    decltype(auto) operator()(Args&&... args) const {
        return Fn(std::forward<Args>(args)...);
    }
};

template <class F>
struct Signature {
    static_assert(
        std::is_void_v<F>,
        "SHARE: this cannot be called in exactly one way: name the parameter types (no auto, no overloads), or "
        "pick one with static_cast");
};
template <class R, class... P>
struct SignatureOf {
    template <template <class, class...> class Use>
    using Apply = Use<R, P...>;
    /// Whether F may be called as const.
    template <class F>
    static constexpr bool kConst = std::is_invocable_v<const F&, P...>;
};
template <class R, class... P>
struct Signature<std::function<R(P...)>> : SignatureOf<R, P...> {};
template <class R, class... P>
struct Signature<R (*)(P...)> : SignatureOf<R, P...> {};
template <class R, class... P>
struct Signature<R (*)(P...) noexcept> : SignatureOf<R, P...> {};
template <class F>
requires requires(F callable) { std::function(callable); }
struct Signature<F> : Signature<decltype(std::function(std::declval<F>()))> {};
template <auto Fn>
struct Signature<StaticCallable<Fn>> : Signature<std::decay_t<decltype(Fn)>> {};

template <class P>
struct StoredType {
    using Type = P;
};
template <>
struct StoredType<std::string_view> {
    using Type = std::string;
};
template <class T>
struct StoredType<std::span<const T>> {
    using Type = std::vector<T>;
};

/// The rules for a parameter of a shared function, as compile errors.
template <class P>
struct Parameter {
    using Stored = typename StoredType<std::remove_cvref_t<P>>::Type;
    static_assert(!std::same_as<Stored, Context>, "SHARE: Context& must be the first parameter");
    static_assert(!std::is_pointer_v<std::remove_cvref_t<P>>,
                  "SHARE: a pointer cannot cross a process boundary: take the value, std::vector, Bytes or at::Tensor");
    static_assert(
        kIsStream<Stored> || !(std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>>),
        "SHARE: a non-const reference parameter cannot be shared: return the result instead (Context& goes first)");
    static_assert(std::is_pointer_v<std::remove_cvref_t<P>> || kIsStream<Stored> || Shareable<Stored>,
                  "SHARE: no Codec for this parameter type: " SHARED_TENSOR_DETAIL_CODEC_HINT);
};

template <class R>
struct ResultRules {
    using Stored = std::remove_cvref_t<R>;
    static_assert(!kIsStream<Stored>,
                  "SHARE: a stream cannot be a result: take a Writer as a parameter and write to it");
    static_assert(!std::is_pointer_v<Stored>,
                  "SHARE: a function that returns a pointer cannot be shared: return the value");
    static_assert(std::is_void_v<Stored> || std::is_pointer_v<Stored> || kIsStream<Stored> || Shareable<Stored>,
                  "SHARE: no Codec for the result type: " SHARED_TENSOR_DETAIL_CODEC_HINT);
};

/// Passes a stored argument to a parameter of type P: moved if P is a value or an rvalue reference. A stream may be
/// passed by reference.
template <class P, class Stored>
decltype(auto) pass(Stored& stored) {
    if constexpr (kIsStream<Stored> && std::is_lvalue_reference_v<P>) {
        return static_cast<P>(stored);
    } else if constexpr (std::is_lvalue_reference_v<P> || !std::same_as<std::remove_cvref_t<P>, Stored>) {
        return static_cast<const Stored&>(stored);
    } else {
        return static_cast<Stored&&>(stored);
    }
}

}  // namespace shared_tensor::detail

namespace shared_tensor {

/// Binds a member function to its object: registry.add("name", member(object, &Type::method)). `object` is a pointer or
/// a std::shared_ptr. The object of a plain pointer must outlive the registry.
template <class Object, class R, class C, class... P>
auto member(Object object, R (C::*method)(P...)) {
    return [object = std::move(object), method](P... args) -> R {
        return std::invoke(method, *object, std::forward<P>(args)...);
    };
}
template <class Object, class R, class C, class... P>
auto member(Object object, R (C::*method)(P...) const) {
    return [object = std::move(object), method](P... args) -> R {
        return std::invoke(method, *object, std::forward<P>(args)...);
    };
}

}  // namespace shared_tensor
