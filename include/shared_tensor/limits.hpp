#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

// The limits of a server, one struct for each part of the server that enforces them. ServerOptions holds all of them;
// docs/options.md lists each limit with the daemon's option for it. Every struct is a plain value.

namespace shared_tensor {

/// The part of a shared limit that one client may use: half, rounded up. So no client can lock out all others.
constexpr std::size_t share_of_one_client(std::size_t all) { return all / 2 + all % 2; }

/// PEM files for TLS 1.3. A server reads them again when they change.
struct TlsOptions {
    std::string certificate{};  ///< this side's certificate, then its chain without the root
    std::string key{};          ///< the certificate's key; only its owner and group may have access to the file
    /// The authorities that may issue the peer's certificate. Empty in a server: clients need no certificate.
    /// Empty in a client: the system's authorities are trusted.
    std::string authorities{};
};

/// How bodies are compressed, if the peer accepts compression.
struct CompressionOptions {
    std::string codings = "none";  ///< "zstd", "gzip" or both, in order of preference; or "none"
    int level = 1;                 ///< for bodies that this side sends: 1 (fast) to 9 (small)
};

/// The spans of calls, and the OpenTelemetry collector that they are sent to. docs/traces.md describes them.
struct TraceOptions {
    /// Address of the collector, for OTLP over HTTP: "http://127.0.0.1:4318", or with a path; "https://..." trusts the
    /// system's authorities. Empty: there are no spans.
    std::string endpoint{};
    std::string service_name{};      ///< attribute service.name; empty: ServerOptions::service_name, else a default
    std::size_t every = 1;           ///< one of so many traces that begin here is recorded; others as their caller says
    std::size_t max_spans = 10'000;  ///< that wait for the collector; later ones are dropped and counted
};

/// How much of a stream may be sent and not yet read. The writer waits while either number is used up.
struct StreamWindow {
    static constexpr std::size_t kUnbounded = static_cast<std::size_t>(-1);  ///< `items` for a reader without reports
    std::size_t items = 1024;
    std::size_t bytes = std::size_t{4} << 20;  ///< the last item may exceed it
};

/// Connections and the requests on them.
struct HttpLimits {
    std::size_t max_connections = 4096;
    /// For one IP address, for one user of this host, and for one token or certificate. 0: no limit for loopback; half
    /// of max_connections for other hosts and for a token or certificate.
    std::size_t max_client_connections = 0;
    std::size_t max_client_requests = 0;  ///< requests of one client per second, on average; 0: no limit

    std::chrono::milliseconds header_timeout{10'000};  ///< from a request's first byte to the end of its headers
    /// After the headers. For a JSON request: until the body is complete. For a binary request: between two reads.
    std::chrono::milliseconds body_timeout{30'000};
    std::chrono::milliseconds idle_timeout{60'000};   ///< for a connection without a request
    std::chrono::milliseconds write_timeout{30'000};  ///< for a client that reads nothing
    std::size_t min_bytes_per_second = 1 << 10;       ///< average of a binary request or an answer; 0: no limit

    std::size_t max_body_bytes = std::size_t{2} << 30;  ///< for one binary request
    /// All request bodies, answers and copies of arguments together; 0: a quarter of the memory. A client with a token
    /// or certificate may use half of it.
    std::size_t max_bytes_in_flight = 0;
};

/// Limits of one JSON text. An empty array has depth 1, a scalar has depth 0.
struct JsonLimits {
    std::size_t max_depth = 100;
    std::size_t max_bytes = std::size_t{64} << 20;
};

/// Limits of one text with JSON-RPC messages.
struct ParseLimits {
    JsonLimits json{};
    std::size_t max_batch_items = 1000;
};

/// Limits of the JSON of one answer.
struct ReplyLimits {
    std::size_t max_json_bytes = std::size_t{64} << 20;
    std::size_t max_data_elements = 1'000'000;  ///< for a tensor that is written as nested lists (`data`)
};

/// The threads that run functions, and their queue.
struct WorkerLimits {
    std::size_t workers = 4;
    std::size_t queue_limit = 1024;  ///< waiting calls and tasks, including those that wait for a group
    /// Places in the queue that tasks may not use: an eighth, at least one if the queue has two places or more.
    std::size_t kept_for_calls() const {
        const std::size_t eighth = queue_limit / 8;
        return queue_limit < 2 ? 0 : eighth > 0 ? eighth : 1;
    }
};

struct TaskLimits {
    static constexpr std::chrono::milliseconds kMaxTtl{24 * 3'600'000};  ///< longer values are reduced to it

    std::size_t max_tasks = 10'000;                    ///< unfinished and finished tasks together
    std::chrono::milliseconds default_ttl{3'600'000};  ///< how long a finished task is kept
    std::uint64_t max_bytes = std::uint64_t{1} << 30;  ///< for results of finished tasks; host and device separately
};

/// Limits of the idempotency keys of finished calls.
struct IdempotencyLimits {
    std::chrono::milliseconds window{600'000};           ///< how long a key is known after its call ended
    std::uint64_t max_bytes = std::uint64_t{256} << 20;  ///< arguments and results held for keys
};

/// Limits of calls and of the threads that run them.
struct CallLimits {
    WorkerLimits pool{};
    std::chrono::milliseconds call_timeout{30'000};  ///< deadline of a call that does not set one
    std::size_t max_streams = 64;  ///< calls with streams at once; each has a thread of its own, not a worker
    bool cache = true;             ///< keep results of functions marked cached()
    std::uint64_t cache_bytes = std::uint64_t{256} << 20;  ///< for all cached results together
    TaskLimits tasks{};
    IdempotencyLimits idempotency{};
};

struct SessionLimits {
    std::size_t max_sessions = 256;           ///< of all HTTP clients together, and of each local channel
    std::chrono::milliseconds idle{600'000};  ///< an HTTP session ends after this time without a call
};

/// Limits of object handles (<shared_tensor/object.hpp>).
struct ObjectLimits {
    std::size_t max_handles = 10'000;  ///< of all clients together; one principal may have half
    std::size_t max_per_principal() const { return share_of_one_client(max_handles); }
};

/// Limits of shared memory, and of the processes that use it.
struct SharedMemoryLimits {
    std::uint64_t max_bytes = 0;      ///< for results, in use or kept for reuse; 0: half of the memory
    std::size_t max_segments = 0;     ///< half for results, half for arguments; 0: from the limit of open files
    std::size_t max_channels = 1024;  ///< processes with a local channel; each takes two descriptors
};

/// Limits of leases (tensors lent to clients).
struct LeaseLimits {
    static constexpr std::chrono::milliseconds kMaxTtl{24 * 3'600'000};
    /// Lifetime of a lease of a client without a local channel. It is long enough to fetch a large tensor by a slow
    /// transport; lease.renew makes it longer.
    static constexpr std::chrono::milliseconds kTtl{300'000};

    std::size_t max_leases = 100'000;  ///< of all clients together; one client may have half
    std::size_t max_per_client() const { return share_of_one_client(max_leases); }
    std::uint64_t max_kept_bytes = std::uint64_t{8} << 30;  ///< of all clients without a local channel together
    /// A lease that is not confirmed within this time ends, because its reply was lost. Client confirms within 2 s.
    std::chrono::milliseconds confirm_within{60'000};
};

struct NamedTensorLimits {
    std::size_t max_names = 10'000;                    ///< of all owners together; a set counts as one
    std::uint64_t max_bytes = std::uint64_t{8} << 30;  ///< for all versions that are kept
    /// Older versions of each name that are kept, as far as max_bytes allows, so that readers on other hosts who have
    /// one of them fetch only the elements that changed.
    std::size_t older_versions = 0;
};

/// Receivers that pull one version of a named tensor together (PullOptions::swarm).
struct SwarmLimits {
    std::size_t max_receivers = 1024;          ///< of all files
    std::chrono::milliseconds silence{5'000};  ///< a receiver that asks for nothing for so long is forgotten
};

/// Limits of uploads: files that clients send in parts, and that are not complete.
struct UploadLimits {
    std::uint64_t max_bytes = std::uint64_t{8} << 30;  ///< of all clients together; one that is not an admin: half
    std::uint64_t max_client_bytes() const { return max_bytes / 2; }
    std::size_t max_uploads = 1'000;  ///< of all clients together; one client may have half
    std::size_t max_client_uploads() const { return share_of_one_client(max_uploads); }
    /// An upload ends after this time without a part. A published upload is remembered for the same time.
    std::chrono::milliseconds ttl{300'000};
};

/// Limits of /metrics.
struct MetricsLimits {
    std::size_t max_values = 200;  ///< values of the labels "function" and "client"; others are summed as "(other)"
};

struct SocketLimits {
    std::size_t max_sockets = 256;  ///< open WebSockets; each holds a thread
    std::size_t max_calls = 16;     ///< calls on one WebSocket at once, calls with streams included
};

}  // namespace shared_tensor
