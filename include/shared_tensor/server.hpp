#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/registry.hpp>

namespace shared_tensor {

/// A bearer token that clients show as `Authorization: Bearer SECRET`. Once there is one, every request needs one.
struct AccessToken {
    std::string name;    ///< the principal is "token:NAME"
    std::string secret;  ///< at least 16 characters
    bool admin = false;  ///< may see and end what belongs to others
    /// Methods that its bearer may call, by name or by prefix ("add", "tensor.*"); empty: all. What only concerns calls
    /// of its own (task., lease., session., object., server. and rpc.) goes with any.
    std::vector<std::string> allow{};
};

/// Where a server listens and what it bounds. The defaults are safe: loopback, the server's own user (or root) only.
struct ServerOptions {
    std::string host = "127.0.0.1";  ///< empty: no TCP. Anything but loopback needs a token or `insecure`
    int port = 2537;                 ///< 0: the kernel chooses
    std::string unix_socket;         ///< path; empty: none. Mode 0600
    /// The local channel, by which processes of this host share memory with the server: a path, "auto" (named after the
    /// port, in the user's runtime directory) or "none".
    std::string local_socket = "auto";
    /// Tensors on GPUs go to processes of this host without a copy: "auto" (where there is a GPU), "on" (else the
    /// server does not start) or "off". Where functions or models use libtorch, that has to be one with CUDA, and its
    /// CUDA libraries are loaded when the server is made, which takes seconds.
    std::string cuda = "auto";
    std::vector<AccessToken> tokens;
    /// Further tokens: lines NAME:SECRET, then :admin or :allow=METHOD,PREFIX.* or both; mode 0600. Read again when it
    /// changes, within 3 s: who showed a token that is gone, or allows something else now, is sent away.
    std::string token_file;
    /// TLS 1.3 on the TCP port: PEM files of the certificate with its chain, and of its key. Read again when they
    /// change.
    std::string tls_certificate, tls_key;
    /// PEM file of authorities: clients need a certificate of theirs as well. Without tokens it says who they are.
    std::string tls_client_ca;
    bool insecure = false;                     ///< listen beyond loopback without tokens
    std::vector<std::string> allowed_hosts;    ///< further values of Host ("name" or "name:port")
    std::vector<std::string> allowed_origins;  ///< values of Origin; none by default: no web page calls in

    /// TorchScript models, "NAME=PATH" or "NAME=PATH?stateful=no&device=cuda:0&dtype=float16&grad=yes", and packages of
    /// AOTInductor, "NAME=PATH.pt2", which hold native code, and are checked as plugins are: the methods of
    /// each are shared as NAME.METHOD. Such a file is a program.
    std::vector<std::string> models;
    /// The folder of the libtorch that models run on, as `python3 -c "import torch; print(torch.__path__[0])"` prints
    /// it; empty: it is looked for. A server without `models` and `model_folders` needs none.
    std::string libtorch;
    /// Folders whose files an admin may load by model.load, while the server runs; empty: none.
    std::vector<std::string> model_folders;
    std::size_t max_models = 100;  ///< at once, those that are loaded on request; `models` are not held to it

    /// What server.info tells of the service that runs here.
    std::string service_name, service_version;
    /// Content codings of answers and files for clients that accept one, in order of choice: "zstd, gzip"; "none".
    /// Tensors inside messages are compressed by zstd only, if it is in the list.
    std::string compression = "zstd, gzip";
    int compression_level = 1;  ///< 1 (fast) to 9 (small)

    std::size_t workers = 0;        ///< 0: max(4, cores)
    std::size_t queue = 1024;       ///< calls that wait
    std::size_t torch_threads = 0;  ///< of each thread that calls libtorch; 0: max(1, cores / workers)
    std::chrono::milliseconds call_timeout{30'000};
    std::chrono::milliseconds drain_time{10'000};
    bool cache = true;
    std::uint64_t cache_bytes = std::uint64_t{256} << 20;

    std::size_t max_json_bytes = std::size_t{64} << 20;  ///< JSON of a request
    std::size_t max_json_depth = 100;
    std::size_t max_body_bytes = std::size_t{2} << 30;  ///< of a binary request
    std::size_t max_batch_items = 1000;
    std::size_t max_batch_reply_bytes = 25'000'000;
    std::size_t max_reply_json_bytes = std::size_t{64} << 20;
    std::size_t max_reply_data_elements = 1'000'000;  ///< of a tensor that an answer writes as nested lists (`data`)
    std::size_t max_connections = 4096;
    /// Connections of clients that have not shown who they are: of other users of this host without tokens, of all
    /// but the server's own user and root with tokens, until their first request with a token. 0: a quarter of
    /// max_connections. Beyond it the oldest of those that send nothing goes.
    std::size_t max_untrusted_connections = 0;
    /// Of one client: connections of its address or, on this host, its user (0: any number from loopback, half of all
    /// from other hosts) and of its principal (0: half of all with a token or a certificate); requests a second and
    /// bytes of requests in flight of its principal (0: any number; 0: half of all with a token or a certificate).
    std::size_t max_client_connections = 0, max_client_requests = 0;
    std::size_t max_client_bytes_in_flight = 0;
    std::size_t max_header_bytes = 8 << 10;  ///< one line
    std::size_t max_headers = 100;
    std::size_t max_chunks = std::size_t{1} << 20;  ///< of one chunked body
    std::size_t max_bytes_in_flight = 0;            ///< 0: a quarter of the memory
    std::size_t min_bytes_per_second = 1 << 10;     ///< of a binary request or an answer, on average; 0: none
    std::chrono::milliseconds header_timeout{10'000};
    std::chrono::milliseconds body_timeout{30'000};
    std::chrono::milliseconds body_stall_timeout{30'000};
    std::chrono::milliseconds idle_timeout{60'000};
    std::chrono::milliseconds write_timeout{30'000};
    std::chrono::milliseconds max_wait{30'000};  ///< task.wait, task.result and tensor.watch, a request

    std::size_t max_tasks = 10'000;
    std::chrono::milliseconds task_ttl{3'600'000};
    std::uint64_t max_task_bytes = std::uint64_t{1} << 30;       ///< host and device apart
    std::size_t idempotency_keys = 10'000;                       ///< of calls that ended
    std::chrono::milliseconds idempotency_window{600'000};       ///< how long after the end of its call
    std::uint64_t idempotency_bytes = std::uint64_t{256} << 20;  ///< results held for them
    std::size_t max_sessions = 256;                              ///< over HTTP, and for each local channel
    std::chrono::milliseconds session_idle{600'000};

    std::uint64_t max_shared_bytes = 0;  ///< of shared memory for results, in use and kept warm; 0: half of the memory
    /// Segments of shared memory, for results and of clients together; each takes a descriptor. 0: as many as the limit
    /// of open files (ulimit -n) leaves room for, at most 16,384 of each.
    std::size_t max_segments = 0;
    std::size_t max_local_channels = 1024;  ///< processes that have a local channel; each takes two descriptors
    /// Raises the process's limit of open files from the soft to the hard one when the server starts; the daemon does.
    bool raise_descriptor_limit = false;
    std::size_t max_leases = 100'000;
    std::size_t max_client_leases = 10'000;
    std::chrono::milliseconds lease_ttl{300'000};  ///< of clients without a local channel
    std::uint64_t max_kept_bytes = 0;              ///< of tensors leased to those; 0: a quarter of the memory
    /// A client that has not said by then that it got a tensor is taken not to have: the lease ends. Client says so
    /// within 2 s.
    std::chrono::milliseconds lease_confirm_within{60'000};

    std::size_t max_named_tensors = 10'000;  ///< a set counts as one
    std::size_t max_set_members = 100'000;   ///< of one set
    std::uint64_t max_named_bytes = 0;       ///< of the versions that can be got now; 0: a quarter of the memory

    std::uint64_t max_upload_bytes = 0;             ///< of files that are being put; 0: a quarter of the memory
    std::uint64_t max_client_upload_bytes = 0;      ///< of one principal that is no admin; 0: half of those
    std::size_t max_uploads = 1'000;                ///< such files
    std::size_t max_client_uploads = 100;           ///< of one principal
    std::chrono::milliseconds upload_ttl{300'000};  ///< end of one that gets no part

    std::size_t max_web_sockets = 256;  ///< at once; each holds a thread
    std::size_t max_streams = 64;       ///< calls that stream, at once; each holds a thread, and none of the workers
    std::size_t max_socket_calls = 16;  ///< at once, of one WebSocket
    std::size_t max_socket_watches = 1'000;  ///< tasks that one WebSocket watches
    /// As ClientOptions has them, for what functions read.
    std::size_t stream_window_items = 1024;
    std::size_t stream_window_bytes = std::size_t{4} << 20;
    std::chrono::milliseconds socket_idle{60'000};  ///< end of a WebSocket whose other side answers no ping

    std::size_t max_objects = 10'000;        ///< handles of objects (<shared_tensor/object.hpp>), of all clients
    std::size_t max_client_objects = 1'000;  ///< of one principal
    std::chrono::milliseconds object_idle{600'000};  ///< end of a handle without a session that is not used
};

/// Serves a Registry over JSON-RPC 2.0 on HTTP. Threads and sockets are its own; user code runs on its workers.
///
/// Thread safety: start(), stop() and the destructor from one thread, the rest from any.
class Server {
public:
    /// Loads the models, which takes its time. Throws std::invalid_argument for options that contradict each other or
    /// would not be safe, std::runtime_error for a model that cannot be loaded.
    Server(Registry registry, ServerOptions options = {});
    ~Server();  ///< stop() with no time to drain; nothing in a forked child, whose copy serves nobody
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    /// Binds and serves. Throws std::system_error that names the address. Does not block. Where processes of this host
    /// can share memory with it, installs a handler for SIGBUS, once; all but faults in their memory goes to the
    /// handler that was there before.
    void start();
    /// start(), then blocks until the process gets SIGTERM or SIGINT, then stop(drain_time), whose result it returns. A
    /// further signal has the effect that it had before this was called: it ends the process, as a rule.
    /// Throws as start() does, and std::logic_error where another server of the process runs so.
    bool run(std::chrono::milliseconds drain_time = std::chrono::seconds(10));
    int port() const;               ///< the bound TCP port
    std::string url() const;        ///< "http://127.0.0.1:2537", https with TLS, or "unix:/path" without TCP
    std::size_t functions() const;  ///< that can be called now; models add theirs

    /// Calls and loads in flight are answered, new ones refused with -32009. Blocks for `drain_time` and a few seconds;
    /// longer while an object's destructor or a closing session does. False if something did not end in time.
    bool stop(std::chrono::milliseconds drain_time);

    /// Told the token-independent id of every session that ends; set before start(). Must not block.
    void on_session_closed(std::function<void(std::string_view)> closed);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor
