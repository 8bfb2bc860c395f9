#pragma once

// SHARE: one line beside a function makes it callable from other processes.
//
//     double add(double a, double b) { return a + b; }
//     SHARE(add, arg("a"), arg("b") = 1.0, doc("The sum."))
//
// at namespace scope of a .cpp file, in a plugin (loaded by shared-tensor-server --load) or in an executable of your
// own (Registry::from_shared()). The signature is taken from the function at compile time; what can't be shared is a
// compile error in words. The name is the function's as written, "ns::add" as "ns.add"; SHARE_AS gives another one, and
// picks one of several overloads: SHARE_AS("add", static_cast<int (*)(int, int)>(add)).
//
// In a static library the linker drops files that nobody refers to, records included: link it whole
// ($<LINK_LIBRARY:WHOLE_ARCHIVE,lib> or an OBJECT library; docs/plugins.md).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <shared_tensor/detail/adapter.hpp>
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
    const char* torch_version;  ///< empty: built without knowledge of torch
    const ShareRecord* records;
};

}  // namespace shared_tensor::detail

#if defined(SHARED_TENSOR_TORCH_VERSION)
#define SHARED_TENSOR_DETAIL_TORCH_VERSION SHARED_TENSOR_TORCH_VERSION
#elif defined(TORCH_VERSION)
#define SHARED_TENSOR_DETAIL_TORCH_VERSION TORCH_VERSION
#else
#define SHARED_TENSOR_DETAIL_TORCH_VERSION ""
#endif

/// The one symbol that the daemon looks up in a plugin; present in every module that includes this header.
extern "C" [[gnu::visibility("default"), gnu::used]] inline const shared_tensor::detail::PluginManifest*
shared_tensor_plugin_v1() noexcept {
    static shared_tensor::detail::PluginManifest manifest;
    manifest = {sizeof manifest, SHARED_TENSOR_PLUGIN_ABI, SHARED_TENSOR_VERSION, SHARED_TENSOR_DETAIL_TORCH_VERSION,
                shared_tensor::detail::share_records};
    return &manifest;
}

#define SHARED_TENSOR_DETAIL_JOIN2(a, b) a##b
#define SHARED_TENSOR_DETAIL_JOIN(a, b) SHARED_TENSOR_DETAIL_JOIN2(a, b)

/// Shares `fn` under its own name. Options: arg, doc, concurrency, cached, timeout, idempotent, version, borrows,
/// execution::...
#define SHARE(fn, ...) SHARE_AS(#fn, fn __VA_OPT__(, ) __VA_ARGS__)

/// Shares `fn` under the name given, a string literal.
#define SHARE_AS(name, fn, ...)                                                                                 \
    [[maybe_unused]] static const ::shared_tensor::detail::ShareRecord* const SHARED_TENSOR_DETAIL_JOIN(        \
        shared_tensor_share_record_, __COUNTER__) =                                                             \
        ::shared_tensor::detail::share(name, __FILE__, __LINE__, ::shared_tensor::detail::StaticCallable<fn>{}, \
                                       [](auto make) {                                                          \
                                           using ::shared_tensor::arg;                                          \
                                           using ::shared_tensor::borrows;                                      \
                                           using ::shared_tensor::cached;                                       \
                                           using ::shared_tensor::concurrency;                                  \
                                           using ::shared_tensor::doc;                                          \
                                           using ::shared_tensor::execution;                                    \
                                           using ::shared_tensor::idempotent;                                   \
                                           using ::shared_tensor::timeout;                                      \
                                           using ::shared_tensor::version;                                      \
                                           using namespace ::std::chrono_literals;                              \
                                           return make(__VA_ARGS__);                                            \
                                       });                                                                      \
    static_assert(true, "")
