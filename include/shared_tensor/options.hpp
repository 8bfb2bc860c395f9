#pragma once

// The options of SHARE(fn, ...) and registry.add(name, callable, ...).

#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>

namespace shared_tensor {

/// Where a function runs.
enum class execution {  // NOLINT(readability-identifier-naming): lower case, like the other options
    worker,             ///< in the place of a worker, of which there are --workers; the caller waits (default)
    task,               ///< plain calls are rejected with the hint to use task.submit: for work of minutes
    inline_,            ///< on the connection's own thread: for functions of a few microseconds without tensors
};

/// The options of one function. SHARE and Registry::add() build it from the functions below.
struct FunctionOptions {
    std::string_view doc;
    execution runs = execution::worker;
    std::size_t concurrency = 0;           ///< runs at once; 0: the number of workers
    std::chrono::milliseconds timeout{0};  ///< deadline of a plain call; 0: the server's deadline
    bool cached = false;
    std::chrono::milliseconds cache_ttl{0};
    std::size_t cache_bytes = 0;              ///< limit of this function's cached results
    bool idempotent = false;                  ///< shown to callers by rpc.discover
    bool borrows = false;                     ///< device memory of local callers is not copied before the call
    bool stateful = false;                    ///< never cached; calls of one session run one after another
    std::string_view version;                 ///< part of the cache key
    bool no_grad = false;                     ///< runs without autograd
    std::size_t batch_rows = 0;               ///< rows that joined calls have at most; 0: calls are not joined
    std::chrono::microseconds batch_wait{0};  ///< how long a call waits for others to join
    std::string_view device;                  ///< tensor arguments are moved to it before the call; empty: not moved
    std::string_view dtype;  ///< floating-point tensor arguments are converted to it; empty: not converted
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

/// Names the next parameter: arg("x"), or with a default: arg("factor") = 2.0. Name all parameters or none.
constexpr option::Name arg(std::string_view name) { return {name}; }

/// One or more sentences for people; rpc.discover and `shared-tensor functions` show them.
constexpr auto doc(std::string_view text) {
    return option::Option{[text](FunctionOptions& options) { options.doc = text; }};
}

/// Lets at most `runs` calls run at once (1: serialised). More calls wait in the queue, not in a worker.
constexpr auto concurrency(std::size_t runs) {
    return option::Option{[runs](FunctionOptions& options) { options.concurrency = runs; }};
}

/// Caches results for `ttl`, at most `bytes` of them. Equal calls in flight run once. Only for functions without side
/// effects.
constexpr auto cached(std::chrono::milliseconds ttl, std::size_t bytes = std::size_t{64} << 20) {
    return option::Option{[ttl, bytes](FunctionOptions& options) {
        options.cached = true;
        options.cache_ttl = ttl;
        options.cache_bytes = bytes;
    }};
}

/// The deadline of a call without its own deadline. A caller may ask for a shorter or longer time.
constexpr auto timeout(std::chrono::milliseconds limit) {
    return option::Option{[limit](FunctionOptions& options) { options.timeout = limit; }};
}

/// Declares that running the function twice does no harm. rpc.discover shows it; a client repeats calls only if it sets
/// CallOptions::idempotent.
constexpr auto idempotent() {
    return option::Option{[](FunctionOptions& options) { options.idempotent = true; }};
}

/// The function reads GPU tensors of callers on this host in place, without a copy. It must not write to them or keep
/// them after the call. Its caller must not write to them until the call is answered.
constexpr auto borrows() {
    return option::Option{[](FunctionOptions& options) { options.borrows = true; }};
}

/// Joins calls that wait at the same time, and runs them as one. Their tensor arguments are joined along dimension 0,
/// to at most `rows` rows, and each caller gets its own rows of the result. A call waits at most `wait` for others, on
/// a worker; with 0, only calls that wait for a worker already are joined.
///
/// All tensor arguments of a call must have the same number of rows. Calls are joined if they come from the same
/// principal, their tensors differ in the number of rows only, lie in host memory, and all other arguments are equal.
/// The result must be a tensor with as many rows, a list with one element for each row, or a struct, tuple, list or map
/// of such tensors. If the joined run fails, each of its calls runs again alone, so running the function twice must do
/// no harm. Throws std::invalid_argument where the function is registered if it streams, is stateful or inline, or if
/// `wait` is longer than 10 s.
constexpr auto batched(std::size_t rows, std::chrono::microseconds wait = std::chrono::microseconds{0}) {
    return option::Option{[rows, wait](FunctionOptions& options) {
        options.batch_rows = rows;
        options.batch_wait = wait;
    }};
}

/// Runs the function without autograd, as under at::NoGradGuard.
constexpr auto no_grad() {
    return option::Option{[](FunctionOptions& options) { options.no_grad = true; }};
}

/// Moves the tensors of the arguments to a device before the call: "cpu", "cuda", "cuda:1". A server without this
/// device does not start. A TensorRef argument is not moved: if it is not on this device already, the call is rejected.
constexpr auto on_device(std::string_view device) {
    return option::Option{[device](FunctionOptions& options) { options.device = device; }};
}

/// Converts floating-point tensors of the arguments before the call: "float32", "float16", "bfloat16" or "float64". A
/// TensorRef argument is not converted: if it has another dtype, the call is rejected.
constexpr auto as_dtype(std::string_view dtype) {
    return option::Option{[dtype](FunctionOptions& options) { options.dtype = dtype; }};
}

/// A part of the cache key. Change it when the function's behaviour changes.
constexpr auto version(std::string_view text) {
    return option::Option{[text](FunctionOptions& options) { options.version = text; }};
}

}  // namespace shared_tensor
