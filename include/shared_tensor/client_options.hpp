#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include <shared_tensor/limits.hpp>
#include <shared_tensor/retry.hpp>

namespace shared_tensor {

/// Of one call. Given by Client::with().
struct CallOptions {
    /// For the call with all its tries; the server gets it as the deadline. None: the function's own deadline, else
    /// the server's (30 s), and ClientOptions::answer_limit here.
    std::optional<std::chrono::milliseconds> timeout{};
    /// Cancels the call from another thread: soon after the stop is requested, the call throws Cancelled. Its
    /// connection is closed, by which the server learns that nobody waits any more and cancels the function's Context.
    /// Before the call starts: nothing is sent. Other calls go on. Of submit: cancels the submission; the Task has its
    /// own cancel().
    std::stop_token stop{};
    /// Same key, method and parameters: the server runs the call once and answers every repeat with that result.
    std::string idempotency_key{};
    /// Running the call twice does no harm, so it may be repeated when the connection broke after it was sent.
    bool idempotent = false;
    /// Token of a session that was opened elsewhere; Client::new_session() needs no such.
    std::string session{};
    /// The only ways that tensors of the call may go, both there and back: "shm", "cuda_ipc, shm", ... Empty: any that
    /// ClientOptions::accept allows. Where none of them can be had, the call fails with TransportNotPossible, which
    /// says why, instead of taking a slower way.
    std::string require{};
    /// Of submit: how long the server keeps the finished task, and when it cancels it. None: the server's own.
    std::optional<std::chrono::milliseconds> task_ttl{}, task_deadline{};
};

namespace detail {

/// A function, since gcc 12 warns of uninitialised memory where the default itself stands in the struct.
inline CompressionOptions no_compression() { return {}; }

}  // namespace detail

/// Of a client. Zero means "none" only where it says so.
struct ClientOptions {
    /// "http://host:port", "https://host:port" or "unix:/path/of/socket". Empty: the environment's SHARED_TENSOR_URL,
    /// else 127.0.0.1 with port 2537 plus RANK (else LOCAL_RANK).
    std::string url{};
    /// Bearer token of a server that wants one; goes along with every request, so only to servers that you trust.
    /// Empty: the environment's SHARED_TENSOR_TOKEN where the url is not given either.
    std::string token{};
    /// Of https. Authorities that may have signed the server's certificate; empty: those of the system, or with the
    /// environment's url SHARED_TENSOR_CA. The certificate is always checked, and so is its host. A certificate and its
    /// key are for servers that want one.
    TlsOptions tls{};
    /// "zstd": tensors and files are compressed on their way to other hosts and back, where the server knows zstd and
    /// they become smaller by a tenth. It is for slow networks: zstd compresses some hundred MB a second. Or "none".
    CompressionOptions compression = detail::no_compression();

    std::size_t connections = 8;                       ///< at once; further calls wait for one
    std::chrono::milliseconds idle_limit{50'000};      ///< an unused connection is kept for so long
    std::chrono::milliseconds connect_timeout{5'000};  ///< of one try to connect
    std::chrono::milliseconds wait_for_server{
        0};  ///< until the first connection: refused ones are tried again for so long
    std::chrono::milliseconds answer_limit{300'000};  ///< a call that names no timeout is given up after so long
    std::size_t max_answer_bytes = std::size_t{2} << 30;
    /// How tensors may come, in order of wish: the words of Shared-Tensor-Accept. Where the server's local channel can
    /// be had, "shm" is put before them, and "cuda_ipc" before that where both sides share a device.
    std::string accept = "body, base64, data";
    /// The server's local channel, by which tensors are handed over without a copy: a path, "auto" (where a server of
    /// this host listens by default; for urls of another host none) or "none".
    std::string local_socket = "auto";
    /// A tensor of fewer bytes that would have to be copied into shared memory goes as bytes with its request: the copy
    /// to the server costs less than the memory.
    std::size_t min_shared_bytes = std::size_t{32} << 10;
    /// Tensors on GPUs without a copy: "auto" (where the program uses CUDA already: its driver, libcuda.so.1, is in the
    /// process when the client first connects), "cuda" (loads it where there is a GPU) or "none". A program that takes
    /// tensors of GPUs as at::Tensor is linked to libtorch_cuda, or has not asked libtorch for GPUs before.
    /// Simulated devices that are switched on (docs/lifecycle.md) are always shared.
    std::string devices = "auto";

    StreamWindow stream_window{};  ///< of what comes to a Reader of Client::stream()

    RetryStrategy retry = exponential_backoff();
    RetryBudget retry_budget{};
};

/// What a client did since it was made. A call with all its tries is one request.
struct ClientStatistics {
    std::uint64_t requests = 0;  ///< calls, notifications and batches
    std::uint64_t failures = 0;  ///< of these: ended with an error (a batch whose items failed did not)
    std::uint64_t retries = 0;
    std::uint64_t bytes_in = 0, bytes_out = 0;  ///< on the wire, heads included
    std::uint64_t connections_opened = 0, connections_reused = 0;
    /// Of bodies and tensors that were compressed: on the wire, and as they are.
    std::uint64_t compressed_in = 0, uncompressed_in = 0, compressed_out = 0, uncompressed_out = 0;

    /// From the start of a request until its answer was read, tries and pauses included; up to 6 % too high.
    struct Latency {
        std::uint64_t count = 0;
        std::chrono::nanoseconds p50{0}, p90{0}, p99{0}, max{0};
    } latency;
    /// Of calls: what the server's function took as the server measured it (Server-Timing), and the rest: network,
    /// queue, reading and writing.
    Latency compute, network;
};

}  // namespace shared_tensor
