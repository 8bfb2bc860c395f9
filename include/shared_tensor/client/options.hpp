#pragma once

// The options of clients and of their calls, what a client repeats, and what it measures.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <shared_tensor/error.hpp>
#include <shared_tensor/limits.hpp>

namespace shared_tensor {

// When a client repeats a failed call. A strategy is called only if a repeat is safe: nothing was sent (connection
// refused), the server rejected the call before it ran (-32001 busy, -32009 shutting down), or the caller allows
// repeats (CallOptions::idempotent, or an idempotency key). The call's deadline limits all its tries together. No delay
// is shorter than the server's retry_after_ms.

/// A failed try of a call. Valid while the strategy runs.
struct FailedTry {
    int number;             ///< 1 for the first try
    const RpcError& error;  ///< TransportFailure, ServerBusy, ShuttingDown
};

/// Returns the delay before the next try; nullopt: no further try. Several threads may call it at once; it must not
/// throw.
using RetryStrategy = std::function<std::optional<std::chrono::milliseconds>(const FailedTry&)>;

struct Backoff {
    int tries = 4;  ///< number of tries, including the first
    std::chrono::milliseconds initial{50};
    std::chrono::milliseconds longest{5'000};
    double factor = 2.0;
    std::function<double()> random{};  ///< returns 0 to 1; null: the strategy has its own generator
};

/// Waits a random time between zero and initial * factor^(number - 1), at most `longest` (full jitter), so that clients
/// that failed together do not repeat together. Throws std::invalid_argument for a negative delay, or a factor below 1.
RetryStrategy exponential_backoff(Backoff backoff = {});

/// Waits the same delay before each repeat; `tries` includes the first try.
RetryStrategy fixed_delay(std::chrono::milliseconds delay, int tries);

/// Never repeats a call.
RetryStrategy no_retry();

/// Limits all retries of a client together, so that they do not multiply the load on an overloaded server: each call
/// adds `per_call`, each retry costs 1. The budget starts with `saved`, which is also its maximum.
struct RetryBudget {
    double per_call = 0.2;
    double saved = 20;
};

/// Options of a call. Set them with Client::with().
struct CallOptions {
    /// Limit for the call with all its tries; the server gets it as the deadline. Nullopt: the server uses the
    /// function's deadline, else its own (30 s), and the client waits for ClientOptions::answer_limit.
    std::optional<std::chrono::milliseconds> timeout{};
    /// Cancels the call from another thread: the call throws Cancelled soon after the stop is requested. Its connection
    /// is closed, so the server learns that no client waits and cancels the function's Context. A stop before the call
    /// starts sends nothing. Other calls go on. For submit it cancels only the submission, and ends what
    /// Task::get() and wait_for() wait for: use cancel() of the task to end the task. After fork() a child must neither
    /// use nor request a token of its parent.
    std::stop_token stop{};
    /// The server runs calls with the same key, method and parameters once, and answers each repeat with that result.
    std::string idempotency_key{};
    /// Running the call twice does no harm, so the client may repeat it if the connection breaks after it was sent.
    bool idempotent = false;
    /// Token of a session that was opened elsewhere; not needed with Client::new_session().
    std::string session{};
    /// The only transports for the tensors of arguments and results: "shm", "cuda_ipc, shm", ... Empty: all that
    /// ClientOptions::accept allows. If none of them is possible, the call fails with TransportNotPossible and the
    /// reasons; no slower transport is used.
    std::string require{};
    /// The span that the call belongs to (W3C Trace Context): the server's spans are below it. Empty: in a shared
    /// function the call that it works for, on the function's own thread; else the call begins a trace of its own.
    /// Throws std::invalid_argument for any other text.
    std::string traceparent{};
    /// For submit: how long the server keeps the finished task, and when it cancels the task. Nullopt: the server's
    /// default.
    std::optional<std::chrono::milliseconds> task_ttl{}, task_deadline{};
};

namespace detail {

/// A function, because gcc 12 warns of uninitialised memory if the struct contains the default itself.
template <class T>
T default_of() {
    return {};
}

}  // namespace detail

/// Options of a client. Zero means "none" only if the comment says so.
struct ClientOptions {
    /// "http://host:port", "https://host:port" or "unix:/path/of/socket". Empty: the environment's SHARED_TENSOR_URL,
    /// else 127.0.0.1 with port 2537 plus RANK (else LOCAL_RANK).
    std::string url{};
    /// Bearer token for the server. It is sent with every request, so send it only to servers that you trust.
    /// Empty: the environment's SHARED_TENSOR_TOKEN, if `url` is empty too.
    std::string token{};
    /// For https. `authorities` may sign the server's certificate; empty: the authorities of the system, or
    /// SHARED_TENSOR_CA if the url comes from the environment. The certificate and its host name are always checked.
    /// Set `certificate` and `key` for servers that ask for a client certificate.
    TlsOptions tls{};
    /// "zstd": compresses tensors and files to and from other hosts, if the server supports zstd and the data becomes
    /// smaller by a tenth. Use it for slow networks: zstd compresses some hundred MB per second. Or "none".
    CompressionOptions compression = detail::default_of<CompressionOptions>();

    std::size_t connections = 8;                       ///< connections at once; more calls wait for a connection
    std::chrono::milliseconds idle_limit{50'000};      ///< how long an unused connection is kept
    std::chrono::milliseconds connect_timeout{5'000};  ///< for one try to connect
    /// How long the first call repeats failed tries to connect, while the server starts.
    std::chrono::milliseconds wait_for_server{0};
    /// Timeout of a call that does not set one, and of each request of a transfer.
    std::chrono::milliseconds answer_limit{300'000};
    std::size_t max_answer_bytes = std::size_t{2} << 30;
    /// The transports for results, in order of preference: the value of Shared-Tensor-Accept. If the server's local
    /// channel is available, "shm" is put in front; if both sides share a device, "cuda_ipc" is put before that.
    std::string accept = "body, base64, data";
    /// The server's local channel, through which tensors are passed without a copy: a path, "auto" (the default path of
    /// a server on this host; none for urls of other hosts) or "none".
    std::string local_socket = "auto";
    /// A tensor with fewer bytes that does not lie in shared memory is sent with its request: sending it costs less
    /// than allocating shared memory.
    std::size_t min_shared_bytes = std::size_t{32} << 10;
    /// Whether tensors on GPUs cross without a copy: "auto" (if the process has loaded the CUDA driver, libcuda.so.1,
    /// before the client first connects), "cuda" (loads the driver if there is a GPU) or "none". A program that takes
    /// GPU tensors as at::Tensor must be linked to libtorch_cuda, or must not ask libtorch for GPUs before.
    /// Simulated devices that are switched on (docs/lifecycle.md) are always shared.
    std::string devices = "auto";

    StreamWindow stream_window{};  ///< for the Readers of Client::stream()
    /// Spans of calls, notifications and batches. Off by default: then calls still pass on the trace they belong to.
    TraceOptions traces = detail::default_of<TraceOptions>();

    RetryStrategy retry = exponential_backoff();
    RetryBudget retry_budget{};
};

/// Counts since the client was made. A call with all its tries is one request.
struct ClientStatistics {
    std::uint64_t requests = 0;  ///< calls, notifications and batches
    std::uint64_t failures = 0;  ///< requests that ended with an error; a batch with failed items is not counted
    std::uint64_t retries = 0;
    std::uint64_t bytes_in = 0, bytes_out = 0;  ///< on the wire, with headers
    std::uint64_t connections_opened = 0, connections_reused = 0;
    /// Sizes of the compressed bodies and tensors: on the wire, and uncompressed.
    std::uint64_t compressed_in = 0, uncompressed_in = 0, compressed_out = 0, uncompressed_out = 0;

    /// Time from the start of a request until its answer was read, with tries and pauses; up to 6 % too high.
    struct Latency {
        std::uint64_t count = 0;
        std::chrono::nanoseconds p50{0}, p90{0}, p99{0}, max{0};
    } latency;
    /// For calls: the run time of the function as measured by the server (Server-Timing), and the rest of the time:
    /// network, queue, reading and writing.
    Latency compute, network;
};

/// The times of a call and the transports of its tensors. Client::call() fills it in; if the call fails, with the data
/// that is known then.
struct Receipt {
    /// The tensors that crossed by one transport: "shm", "cuda_ipc", "body", "url", "base64" or "data".
    struct Transport {
        std::string name;
        std::uint64_t tensors = 0;  ///< arguments and results
        std::uint64_t copied = 0;   ///< bytes that the server copied for them
    };

    std::string request_id;  ///< as in the server's log: the header X-Request-Id of the request
    unsigned tries = 0;      ///< how often the request was sent: 1 if it was not repeated
    std::vector<Transport> transports;
    /// Bytes that the server copied for tensors, and that the client copied for arguments. Bytes that cross a network
    /// or a socket are not counted: "body" sends them from the tensor's own memory.
    std::uint64_t bytes_copied = 0;
    /// How long the call waited for a worker, and how long its function ran, measured by the server. Nullopt if no
    /// function ran: for a cached result, or a method of the server itself.
    std::optional<std::chrono::nanoseconds> queue, run;
    std::chrono::nanoseconds total{0};  ///< until the answer came, with all tries and pauses
};

}  // namespace shared_tensor
