#pragma once

// What may stand behind the function in SHARE(fn, ...) and registry.add(name, callable, ...).

#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>

namespace shared_tensor {

/// Where a function runs.
enum class execution {  // NOLINT(readability-identifier-naming): a word, as those of namespace option
    worker,             ///< on the worker pool; the caller waits (default)
    task,               ///< a plain call is refused with the hint to use task.submit: for work of minutes
    inline_,  ///< on the connection's own thread, without a hand-over: for functions of a few microseconds without
              ///< tensors
};

/// Options as the server sees them; built from the words below.
struct FunctionOptions {
    std::string_view doc;
    execution runs = execution::worker;
    std::size_t concurrency = 0;           ///< runs at once; 0: as many as there are workers
    std::chrono::milliseconds timeout{0};  ///< deadline of a plain call; 0: the server's
    bool cached = false;
    std::chrono::milliseconds cache_ttl{0};
    std::size_t cache_bytes = 0;  ///< results of this function kept at most
    bool idempotent = false;      ///< told to callers by rpc.discover
    bool borrows = false;         ///< device memory of local callers is not copied before the call
    bool stateful = false;        ///< never cached; one session's calls run one after another
    std::string_view version;     ///< part of the cache key
    bool no_grad = false;         ///< runs without autograd
    std::string_view device;      ///< where tensor arguments are put before the call; empty: they stay
    std::string_view dtype;       ///< what floating-point tensor arguments become; empty: they stay
};

namespace option {

template <class T>
struct Default {
    std::string_view name;
    T value;
};

struct Name {
    std::string_view name;
    /// arg("factor") = 2.0
    template <class T>
    constexpr Default<T> operator=(T value) const {
        return {name, std::move(value)};
    }
};

template <class Apply>
struct Option {
    Apply apply;  ///< void(FunctionOptions&)
};
template <class Apply>
Option(Apply) -> Option<Apply>;

}  // namespace option

/// Names a parameter, in order: arg("x"), or with a default: arg("factor") = 2.0. Give all of them or none.
constexpr option::Name arg(std::string_view name) { return {name}; }

/// One or more sentences for people; rpc.discover and `shared-tensor functions` show them.
constexpr auto doc(std::string_view text) {
    return option::Option{[text](FunctionOptions& options) { options.doc = text; }};
}

/// At most `runs` at once (1: serialised); further calls wait in the queue, not in a worker.
constexpr auto concurrency(std::size_t runs) {
    return option::Option{[runs](FunctionOptions& options) { options.concurrency = runs; }};
}

/// Keeps results for `ttl`, at most `bytes` of them; equal calls in flight run once. For functions without side
/// effects.
constexpr auto cached(std::chrono::milliseconds ttl, std::size_t bytes = std::size_t{64} << 20) {
    return option::Option{[ttl, bytes](FunctionOptions& options) {
        options.cached = true;
        options.cache_ttl = ttl;
        options.cache_bytes = bytes;
    }};
}

/// The deadline of a call that names none; a caller may ask for less or more.
constexpr auto timeout(std::chrono::milliseconds limit) {
    return option::Option{[limit](FunctionOptions& options) { options.timeout = limit; }};
}

/// Running it twice does no harm: rpc.discover tells so. A client repeats calls only by CallOptions::idempotent.
constexpr auto idempotent() {
    return option::Option{[](FunctionOptions& options) { options.idempotent = true; }};
}

/// Tensors on a GPU that a process of this host passes are read where they lie, not copied first. The function must not
/// write to them, nor keep them beyond the call, and its caller must not write to them until the call was answered.
constexpr auto borrows() {
    return option::Option{[](FunctionOptions& options) { options.borrows = true; }};
}

/// Runs it without autograd, as under at::NoGradGuard.
constexpr auto no_grad() {
    return option::Option{[](FunctionOptions& options) { options.no_grad = true; }};
}

/// Puts the tensors of its arguments there first: "cpu", "cuda", "cuda:1". A server without that device does not start.
/// A TensorRef is not moved: it lies in host memory, or, with "cuda", there already; else the call is refused.
constexpr auto on_device(std::string_view device) {
    return option::Option{[device](FunctionOptions& options) { options.device = device; }};
}

/// Converts floating-point tensors of its arguments first: "float32", "float16", "bfloat16" or "float64"; a TensorRef
/// of another dtype is refused.
constexpr auto as_dtype(std::string_view dtype) {
    return option::Option{[dtype](FunctionOptions& options) { options.dtype = dtype; }};
}

/// Raise it when the function's meaning changes: part of the cache key.
constexpr auto version(std::string_view text) {
    return option::Option{[text](FunctionOptions& options) { options.version = text; }};
}

}  // namespace shared_tensor
