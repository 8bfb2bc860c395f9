#pragma once

// SHARE: one line beside a function makes it callable from other processes.
//
//     double add(double a, double b) { return a + b; }
//     SHARE(add, arg("a"), arg("b") = 1.0, doc("The sum."))
//
// at namespace scope of a .cpp file, in a plugin (loaded by shared-tensor-server --load) or in an executable of your
// own (Registry::from_shared()). The signature is taken from the function at compile time; what can't be shared is a
// compile error in words. The name is the function's, with its namespaces and dots for colons: add in namespace shop is
// "shop.add", whether SHARE(add) stands in the namespace or SHARE(shop::add) outside of it. Unnamed namespaces are left
// out. SHARE_AS gives another name, exactly as written, and picks one of several overloads:
// SHARE_AS("add", static_cast<int (*)(int, int)>(add)).
//
// In a static library the linker drops files that nobody refers to, records included: link it whole
// ($<LINK_LIBRARY:WHOLE_ARCHIVE,lib> or an OBJECT library; docs/plugins.md).

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

/// One shared function in the write-once list of its module (executable or plugin).
struct ShareRecord {
    const SharedFunction* function;
    const ShareRecord* next;
};

/// Each module has a list of its own: hidden, so that the dynamic linker never merges two of them.
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

/// "a::b::" for a type in namespace a::b, and empty for one at global scope. Unnamed namespaces are left out.
inline std::string namespace_of(const std::type_info& type) {
    constexpr std::string_view kUnnamed = "(anonymous namespace)::";
    std::string text = demangled(type.name());
    const auto last = text.rfind("::");
    text.resize(last == std::string::npos ? 0 : last + 2);
    for (auto at = text.find(kUnnamed); at != std::string::npos; at = text.find(kUnnamed))
        text.erase(at, kUnnamed.size());
    return text;
}

/// The name of a function that SHARE takes as `written`, in the namespace of the type `beside`.
inline std::string qualified_name(std::string_view written, const std::type_info& beside) {
    const std::string scope = namespace_of(beside);
    const bool whole = written.starts_with("::") || (!scope.empty() && written.starts_with(scope));
    return whole ? std::string(written) : scope + std::string(written);
}

/// Runs while the module is loaded. Records live as long as the process: nothing is destroyed at exit while a worker
/// runs.
template <class F, class Options>
const ShareRecord* share(const std::string& name, const char* file, int line, F callable, Options options) {
    const SharedFunction* function =
        options([&](const auto&... option) {
            return make_shared_function(wire_name(name), std::string(file) + ':' + std::to_string(line),
                                        std::move(callable), option...);
        }).release();
    share_records = new ShareRecord{function, share_records};
    return share_records;
}

/// What a plugin tells about itself before anything of it is used.
struct PluginManifest {
    std::uint32_t struct_size;
    std::uint32_t abi;
    const char* library_version;
    const Framework* framework;  ///< whose tensors it takes; null: none's
    const ShareRecord* records;
};

}  // namespace shared_tensor::detail

/// The one symbol that the daemon looks up in a plugin; present in every module that includes this header.
extern "C" [[gnu::visibility("default"), gnu::used]] inline const shared_tensor::detail::PluginManifest*
shared_tensor_plugin_v1() noexcept {
    static shared_tensor::detail::PluginManifest manifest;
    manifest = {sizeof manifest, SHARED_TENSOR_PLUGIN_ABI, SHARED_TENSOR_VERSION, shared_tensor::detail::framework,
                shared_tensor::detail::share_records};
    return &manifest;
}

#define SHARED_TENSOR_DETAIL_JOIN2(a, b) a##b
#define SHARED_TENSOR_DETAIL_JOIN(a, b) SHARED_TENSOR_DETAIL_JOIN2(a, b)

/// Shares `fn` under its own name. Options: those of <shared_tensor/options.hpp>, without `shared_tensor::`.
#define SHARE(fn, ...) \
    SHARED_TENSOR_DETAIL_SHARE(SHARED_TENSOR_DETAIL_JOIN(shared_tensor_share_scope_, __COUNTER__), #fn, fn, __VA_ARGS__)

/// What tells SHARE its namespace is a type: no macro can see it.
#define SHARED_TENSOR_DETAIL_SHARE(Scope, written, fn, ...) \
    struct Scope {};                                        \
    SHARE_AS(::shared_tensor::detail::qualified_name(written, typeid(Scope)), fn __VA_OPT__(, ) __VA_ARGS__)

/// Shares `fn` under the name given, a string literal.
#define SHARE_AS(name, fn, ...)                                                                                 \
    [[maybe_unused]] static const ::shared_tensor::detail::ShareRecord* const SHARED_TENSOR_DETAIL_JOIN(        \
        shared_tensor_share_record_, __COUNTER__) =                                                             \
        ::shared_tensor::detail::share(name, __FILE__, __LINE__, ::shared_tensor::detail::StaticCallable<fn>{}, \
                                       [](auto make) {                                                          \
                                           using ::shared_tensor::arg;                                          \
                                           using ::shared_tensor::as_dtype;                                     \
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
