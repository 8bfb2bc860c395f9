#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

// The limits of a server, one struct for each part of it that keeps them. ServerOptions holds all of them;
// docs/options.md lists them with the option of the daemon that sets each. Every struct is a plain value.

namespace shared_tensor {

/// What one client may have of a number that all clients share: half of it, and at least one, so that no client keeps
/// the others out.
constexpr std::size_t share_of_one_client(std::size_t all) { return all / 2 + all % 2; }

/// PEM files of TLS 1.3. A server reads them again when they change.
struct TlsOptions {
    std::string certificate{};  ///< one's own, then the chain below the root
    std::string key{};          ///< of that certificate; readable by its owner and group only
    /// Authorities that the other side's certificate has to be of. Of a server: empty asks clients for no certificate.
    /// Of a client: empty trusts the authorities of the system.
    std::string authorities{};
};

/// How bodies are compressed for the other side, if it can read that.
struct CompressionOptions {
    std::string codings = "none";  ///< "zstd", "gzip" or both, in order of choice; "none"
    int level = 1;                 ///< of what this side sends: 1 (fast) to 9 (small)
};

/// How much of a stream may be on its way to its reader and not read yet. The writer waits while one is used up.
struct StreamWindow {
    static constexpr std::size_t kUnbounded = static_cast<std::size_t>(-1);  ///< items, where no reader reports
    std::size_t items = 1024;
    std::size_t bytes = std::size_t{4} << 20;  ///< the last item may go beyond
};

/// Connections and the requests on them.
struct HttpLimits {
    std::size_t max_connections = 4096;
    /// Of one IP address, of one user of this host, and of one token or certificate. 0: any number from loopback, of
    /// other hosts and with a token or certificate half of max_connections.
    std::size_t max_client_connections = 0;
    std::size_t max_client_requests = 0;  ///< of one client, a second on average; 0: any number

    std::chrono::milliseconds header_timeout{10'000};  ///< first byte of a request until its headers are whole
    /// After the headers: until a JSON request is whole; of a binary request, between two reads.
    std::chrono::milliseconds body_timeout{30'000};
    std::chrono::milliseconds idle_timeout{60'000};   ///< a connection without a request
    std::chrono::milliseconds write_timeout{30'000};  ///< a client that takes no byte for so long
    std::size_t min_bytes_per_second = 1 << 10;       ///< of a binary request or an answer, on average; 0: no bound

    std::size_t max_body_bytes = std::size_t{2} << 30;  ///< of one binary request
    /// Request bodies, answers and copies of arguments held at once; 0: a quarter of the memory. A client with a token
    /// or certificate may have half of it.
    std::size_t max_bytes_in_flight = 0;
};

/// One JSON text. An empty array has depth 1, a scalar 0.
struct JsonLimits {
    std::size_t max_depth = 100;
    std::size_t max_bytes = std::size_t{64} << 20;
};

/// The JSON-RPC messages of one text.
struct ParseLimits {
    JsonLimits json{};
    std::size_t max_batch_items = 1000;
};

/// The JSON of one answer.
struct ReplyLimits {
    std::size_t max_json_bytes = std::size_t{64} << 20;
    std::size_t max_data_elements = 1'000'000;  ///< of a tensor that is written as nested lists (`data`)
};

/// The threads that run functions, and the queue before them.
struct WorkerLimits {
    std::size_t workers = 4;
    std::size_t queue_limit = 1024;  ///< calls and tasks that wait, blocked ones included
    /// Places in the queue that tasks leave to plain calls: an eighth, and one at least if the queue has two.
    std::size_t kept_for_calls() const {
        const std::size_t eighth = queue_limit / 8;
        return queue_limit < 2 ? 0 : eighth > 0 ? eighth : 1;
    }
};

struct TaskLimits {
    static constexpr std::chrono::milliseconds kMaxTtl{24 * 3'600'000};  ///< more is cut to it

    std::size_t max_tasks = 10'000;                    ///< unfinished and finished ones together
    std::chrono::milliseconds default_ttl{3'600'000};  ///< how long a finished task is kept
    std::uint64_t max_bytes = std::uint64_t{1} << 30;  ///< results of finished tasks, host and device memory apart
};

/// Idempotency keys of calls that ended.
struct IdempotencyLimits {
    std::chrono::milliseconds window{600'000};           ///< how long a key is known after its call ended
    std::uint64_t max_bytes = std::uint64_t{256} << 20;  ///< arguments and results held for keys
};

/// How functions run.
struct CallLimits {
    WorkerLimits pool{};
    std::chrono::milliseconds call_timeout{30'000};  ///< deadline of a call that names none
    std::size_t max_streams = 64;  ///< calls that stream, at once; each has a thread that is none of the workers
    bool cache = true;             ///< keep results of functions marked cached()
    std::uint64_t cache_bytes = std::uint64_t{256} << 20;  ///< of all kept results
    TaskLimits tasks{};
    IdempotencyLimits idempotency{};
};

struct SessionLimits {
    std::size_t max_sessions = 256;           ///< over HTTP, and for each local channel
    std::chrono::milliseconds idle{600'000};  ///< end of a session over HTTP that is not used
};

/// Handles of objects (<shared_tensor/object.hpp>).
struct ObjectLimits {
    std::size_t max_handles = 10'000;  ///< of all clients; a principal has half at most
    std::size_t max_per_principal() const { return share_of_one_client(max_handles); }
};

/// Shared memory of results and of clients, and the processes that use it.
struct SharedMemoryLimits {
    std::uint64_t max_bytes = 0;      ///< of results, in use and kept warm; 0: half of the memory
    std::size_t max_segments = 0;     ///< half for results, half of clients; 0: by the limit of open files
    std::size_t max_channels = 1024;  ///< processes that have a local channel; each takes two descriptors
};

/// Tensors that are lent to clients.
struct LeaseLimits {
    static constexpr std::chrono::milliseconds kMaxTtl{24 * 3'600'000};
    /// Of a client without a local channel, until it renews: it is a time in which a reader fetches a large tensor by
    /// slow ways, and lease.renew asks for longer.
    static constexpr std::chrono::milliseconds kTtl{300'000};

    std::size_t max_leases = 100'000;  ///< of all clients; one client has half at most
    std::size_t max_per_client() const { return share_of_one_client(max_leases); }
    std::uint64_t max_kept_bytes = std::uint64_t{8} << 30;  ///< of all clients without a local channel
    /// A client that has not confirmed a lease by then is taken not to have it: a reply that is lost leaks nothing.
    /// Client confirms within 2 s.
    std::chrono::milliseconds confirm_within{60'000};
};

struct NamedTensorLimits {
    std::size_t max_names = 10'000;                    ///< of all owners; a set counts as one
    std::uint64_t max_bytes = std::uint64_t{8} << 30;  ///< of the newest versions
};

/// Files that are being put and are not complete.
struct UploadLimits {
    std::uint64_t max_bytes = std::uint64_t{8} << 30;  ///< of all; a client that is no admin has half at most
    std::uint64_t max_client_bytes() const { return max_bytes / 2; }
    std::size_t max_uploads = 1'000;  ///< of all; one client has half at most
    std::size_t max_client_uploads() const { return share_of_one_client(max_uploads); }
    std::chrono::milliseconds ttl{300'000};  ///< without a part; what was published is known as long
};

struct SocketLimits {
    std::size_t max_sockets = 256;  ///< WebSockets open at once; each holds a thread
    std::size_t max_calls = 16;     ///< of one WebSocket at once, those that stream included
};

}  // namespace shared_tensor
