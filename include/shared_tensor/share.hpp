#pragma once

// SHARE: one line beside a function makes it callable from other processes.
//
//     double add(double a, double b) { return a + b; }
//     SHARE(add, arg("a"), arg("b") = 1.0, doc("The sum."))
//
// Use it at namespace scope of a .cpp file, in a plugin (loaded by shared-tensor-server --load) or in your own
// executable (Registry::from_shared()). The signature is taken from the function at compile time. A function that can't
// be shared gives a compile error with the reason. The shared name is the function's name with its namespaces, with
// dots instead of colons: add in namespace shop is "shop.add", for SHARE(add) inside of the namespace and for
// SHARE(shop::add) outside of it. Unnamed namespaces are left out. SHARE_AS gives another name, exactly as written, and
// can choose an overload: SHARE_AS("add", static_cast<int (*)(int, int)>(add)).
//
// The linker drops files of a static library that no other file refers to, and with them their functions. Link the
// whole library ($<LINK_LIBRARY:WHOLE_ARCHIVE,lib> or an OBJECT library; docs/plugins.md).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include <shared_tensor/detail/adapter.hpp>
#include <shared_tensor/detail/failure.hpp>
#include <shared_tensor/detail/framework.hpp>
#include <shared_tensor/function.hpp>
#include <shared_tensor/options.hpp>
#include <shared_tensor/version.hpp>

namespace shared_tensor::detail {

/// A shared function in the write-once list of its module (executable or plugin).
struct ShareRecord {
    const FunctionRecord* function;
    const ShareRecord* next;
};

/// This module's list. Hidden, so that the dynamic linker does not merge the lists of two modules.
[[gnu::visibility("hidden")]] inline const ShareRecord* share_records = nullptr;

/// "a::b" -> "a.b"
inline std::string wire_name(std::string_view text) {
    std::string name;
    if (text.starts_with("::")) text.remove_prefix(2);
    for (; !text.empty(); text.remove_prefix(1)) {
        const bool scope = text.starts_with("::");
        name.push_back(scope ? '.' : text.front());
        if (scope) text.remove_prefix(1);
    }
    return name;
}

/// "a::b::" for a type in namespace a::b; empty for a type at global scope. Unnamed namespaces are left out.
inline std::string namespace_of(const std::type_info& type) {
    constexpr std::string_view kUnnamed = "(anonymous namespace)::";
    std::string text = demangled(type.name());
    const auto last = text.rfind("::");
    text.resize(last == std::string::npos ? 0 : last + 2);
    for (auto at = text.find(kUnnamed); at != std::string::npos; at = text.find(kUnnamed))
        text.erase(at, kUnnamed.size());
    return text;
}

/// The full name of the function that SHARE was given as `written`. `beside` is a type in the namespace of that SHARE.
inline std::string qualified_name(std::string_view written, const std::type_info& beside) {
    const std::string scope = namespace_of(beside);
    const bool whole = written.starts_with("::") || (!scope.empty() && written.starts_with(scope));
    return whole ? std::string(written) : scope + std::string(written);
}

inline std::string place_of(const char* file, int line) { return std::string(file) + ':' + std::to_string(line); }

/// Adds a record to the module's list, while the module is loaded. Records are never destroyed, because a worker may
/// still run at exit.
inline const ShareRecord* add_record(std::unique_ptr<FunctionRecord> function) {
    share_records = new ShareRecord{function.release(), share_records};
    return share_records;
}

template <class F, class Options>
const ShareRecord* share(std::string_view name, const char* file, int line, F callable, Options options) {
    return add_record(options([&](const auto&... option) {
        return make_function_record(wire_name(name), place_of(file, line), std::move(callable), option...);
    }));
}

/// Describes a plugin. The daemon checks it before it uses anything else of the plugin.
struct PluginManifest {
    std::uint32_t struct_size;
    std::uint32_t abi;
    const char* library_version;
    const Framework* framework;  ///< the tensor framework that the plugin uses; null: none
    const ShareRecord* records;
};

}  // namespace shared_tensor::detail

/// The only symbol that the daemon looks up in a plugin. Every module that includes this header has it.
extern "C" [[gnu::visibility("default"), gnu::used]] inline const shared_tensor::detail::PluginManifest*
shared_tensor_plugin_v1() noexcept {
    static shared_tensor::detail::PluginManifest manifest;
    manifest = {sizeof manifest, SHARED_TENSOR_PLUGIN_ABI, SHARED_TENSOR_VERSION, shared_tensor::detail::framework,
                shared_tensor::detail::share_records};
    return &manifest;
}

#define SHARED_TENSOR_DETAIL_JOIN2(a, b) a##b
#define SHARED_TENSOR_DETAIL_JOIN(a, b) SHARED_TENSOR_DETAIL_JOIN2(a, b)

/// Shares `fn` under its own name. Options: see <shared_tensor/options.hpp>; write them without `shared_tensor::`.
#define SHARE(fn, ...) \
    SHARED_TENSOR_DETAIL_SHARE(SHARED_TENSOR_DETAIL_JOIN(shared_tensor_share_scope_, __COUNTER__), #fn, fn, __VA_ARGS__)

/// A macro cannot see its namespace. So it defines a type, whose name contains the namespace.
#define SHARED_TENSOR_DETAIL_SHARE(Scope, written, fn, ...) \
    struct Scope {};                                        \
    SHARE_AS(::shared_tensor::detail::qualified_name(written, typeid(Scope)), fn __VA_OPT__(, ) __VA_ARGS__)

/// Shares `fn` under `name`, a string literal.
#define SHARE_AS(name, fn, ...)                                                                                 \
    [[maybe_unused]] static const ::shared_tensor::detail::ShareRecord* const SHARED_TENSOR_DETAIL_JOIN(        \
        shared_tensor_share_record_, __COUNTER__) =                                                             \
        ::shared_tensor::detail::share(name, __FILE__, __LINE__, ::shared_tensor::detail::StaticCallable<fn>{}, \
                                       [](auto make) {                                                          \
                                           using ::shared_tensor::arg;                                          \
                                           using ::shared_tensor::as_dtype;                                     \
                                           using ::shared_tensor::batched;                                      \
                                           using ::shared_tensor::borrows;                                      \
                                           using ::shared_tensor::cached;                                       \
                                           using ::shared_tensor::concurrency;                                  \
                                           using ::shared_tensor::doc;                                          \
                                           using ::shared_tensor::execution;                                    \
                                           using ::shared_tensor::idempotent;                                   \
                                           using ::shared_tensor::no_grad;                                      \
                                           using ::shared_tensor::on_device;                                    \
                                           using ::shared_tensor::timeout;                                      \
                                           using ::shared_tensor::version;                                      \
                                           using namespace ::std::chrono_literals;                              \
                                           return make(__VA_ARGS__);                                            \
                                       });                                                                      \
    static_assert(true, "")
