#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/limits.hpp>
#include <shared_tensor/registry.hpp>
#include <shared_tensor/worker_status.hpp>

namespace shared_tensor {

namespace server {
struct Services;
}

/// A bearer token. Clients send it as `Authorization: Bearer SECRET`. If a server has any token, every request needs
/// one.
struct AccessToken {
    std::string name;    ///< the principal is "token:NAME"
    std::string secret;  ///< at least 16 characters
    bool admin = false;  ///< may see and end tasks, leases, objects and names of other principals
    /// The methods that the bearer may call, by name or by prefix ("add", "tensor.*"); empty: all methods. Methods that
    /// only concern the bearer's own calls (task., lease., session., object., server. and rpc.) are always allowed.
    std::vector<std::string> allow{};
};

/// A port for operators: it serves GET /metrics, /healthz and /readyz to everybody who can reach it, and nothing else.
struct OperationsOptions {
    std::string listen{};  ///< "127.0.0.1:9464" or "[::]:9464"; port 0: the kernel chooses; empty: no such port
    /// More accepted values of the Host header ("name" or "name:port"). Addresses and "localhost" are always accepted.
    std::vector<std::string> hosts{};
    /// A file like ServerOptions::token_file. Then /metrics needs one of its tokens; /healthz and /readyz need none.
    std::string token_file{};
    std::size_t max_connections = 64;
    int socket = -1;  ///< a listening TCP socket that another process opened, in place of `listen`; -1: none
};

/// Where a server saves what outlives its process: named tensors with their versions, finished tasks and idempotency
/// keys, in memory whose descriptors a service manager holds. See docs/restarts.md.
struct StateOptions {
    std::string socket{};             ///< the manager's socket (NOTIFY_SOCKET); empty: nothing outlives the process
    std::size_t max_descriptors = 0;  ///< that the manager holds for this service; 0: nothing outlives the process
    std::map<std::string, int> descriptors{};      ///< what it held for an earlier process; the server takes them
    std::size_t max_bytes = std::size_t{1} << 30;  ///< of records: names, results, keys and tensors up to 64 KiB
};

/// What a server logs besides its own events. The daemon's log goes to standard error; its level is not part of this.
struct LogOptions {
    /// A file that gets one line for each HTTP request; "-": standard output; empty: none. docs/logs.md has the form.
    std::string access_log{};
    std::chrono::milliseconds slow_call{0};  ///< a call that takes longer is logged as a warning; 0: none is
};

/// The addresses, contents and limits of a server. The defaults are safe: only loopback, only the server's own user (or
/// root). If 0 stands for a value that depends on the machine, the server's constructor computes this value.
struct ServerOptions {
    std::string host = "127.0.0.1";  ///< empty: no TCP. Other addresses than loopback need a token or `insecure`
    int port = 2537;                 ///< 0: the kernel chooses
    std::string unix_socket;         ///< path; empty: none. Mode 0600
    /// Listening sockets that another process opened, such as systemd: a TCP socket, a Unix socket or both. The server
    /// listens on these alone; `host`, `port` and `unix_socket` then become their addresses. start() takes their
    /// ownership. stop() accepts no more clients at once: they wait in the socket for the next process.
    std::vector<int> inherited_sockets{};
    /// The socket of the local channel, through which processes of this host share memory with the server: a path,
    /// "auto" (a name with the port, in the user's runtime directory) or "none".
    std::string local_socket = "auto";
    /// Whether tensors on GPUs go to processes of this host without a copy: "auto" (if there is a GPU), "on" (the
    /// server does not start without a GPU) or "off". If functions or models use libtorch, it must be a build with
    /// CUDA; its CUDA libraries are loaded in the server's constructor, which takes seconds.
    std::string cuda = "auto";

    std::vector<AccessToken> tokens;
    /// Path of a file with more tokens, mode 0600. Its lines are NAME:SECRET, then :admin or :allow=METHOD,PREFIX.* or
    /// both. The server reads a changed file again within 3 s, and disconnects clients whose token was removed or has
    /// other permissions now.
    std::string token_file;
    /// For the TCP port. With `authorities`, clients need a certificate from one of them. Without tokens, this
    /// certificate identifies the client.
    TlsOptions tls;
    /// For worker processes (<shared_tensor/processes.hpp>): a client of the server's own user names the principal that
    /// it calls for, as its token (percent-encoded). Only for a Unix socket that no other program uses.
    bool named_callers = false;
    bool insecure = false;                     ///< allows other addresses than loopback without tokens
    std::vector<std::string> allowed_hosts;    ///< more accepted values of the Host header ("name" or "name:port")
    std::vector<std::string> allowed_origins;  ///< accepted values of the Origin header; empty: web pages cannot call

    /// Models, whose methods are shared as NAME.METHOD. TorchScript: "NAME=PATH" or
    /// "NAME=PATH?stateful=no&device=cuda:0&dtype=float16&grad=yes". Packages of AOTInductor: "NAME=PATH.pt2"; they
    /// hold native code, and are checked like plugins. A model file is a program: load only files that you trust.
    std::vector<std::string> models;
    /// The folder of the libtorch that models run on, as printed by
    /// `python3 -c "import torch; print(torch.__path__[0])"`; empty: the server searches for it. A server without
    /// `models` and `model_folders` needs no libtorch.
    std::string libtorch;
    /// Folders from which an admin may load models by model.load while the server runs; empty: none.
    std::vector<std::string> model_folders;
    /// Name and version of the service, for server.info.
    std::string service_name, service_version;

    std::size_t torch_threads = 0;                 ///< for each thread that calls libtorch; 0: max(1, cores / workers)
    std::chrono::milliseconds drain_time{10'000};  ///< how long calls in flight may take when the daemon ends
    std::chrono::milliseconds max_wait{30'000};    ///< for one request of task.wait, task.result or tensor.watch
    /// Content codings of answers and files, in order of preference: "zstd, gzip"; or "none". Each client gets the
    /// first coding that it accepts. Tensors inside messages are compressed only by zstd, and only if the list contains
    /// it.
    CompressionOptions compression{.codings = "zstd, gzip"};

    bool dashboard = true;  ///< serves the dashboard, a web page, at "/", and admits the requests of that page
    OperationsOptions operations;
    LogOptions log;
    TraceOptions traces;
    MetricsLimits metrics;
    CallLimits calls{.pool = {.workers = 0}};  ///< workers 0: max(4, cores)
    HttpLimits http;
    ParseLimits requests;
    ReplyLimits replies;
    SessionLimits sessions;
    SocketLimits sockets;
    ObjectLimits objects;
    SharedMemoryLimits shared_memory;
    LeaseLimits leases{.max_kept_bytes = 0};  ///< 0: a quarter of the memory
    NamedTensorLimits names{.max_bytes = 0};  ///< 0: a quarter of the memory
    UploadLimits uploads{.max_bytes = 0};     ///< 0: a quarter of the memory
    SwarmLimits swarms;
    StateOptions state;
    /// Raises the process's soft limit of open files to the hard limit in the server's constructor. The daemon sets it.
    bool raise_descriptor_limit = false;

    /// Where the values of options come from, by the option's name: "--max-tasks", "SHARED_TENSOR_MAX_TASKS", the path
    /// of a file. For server.options. An option that is missing here has its default, or the program set it.
    std::map<std::string, std::string> origins{};
    /// The options of the program that are no members of this struct, by name, for server.options.
    std::map<std::string, std::string> program_options{};
    /// The state of the worker processes that run the functions, for server.info and metrics; empty: there are none.
    /// Any thread may call it until the server is destroyed.
    std::function<std::vector<WorkerProcessStatus>()> worker_processes{};
};

/// Serves a Registry over JSON-RPC 2.0 on HTTP. It has its own threads and sockets; user code runs on its workers.
///
/// Thread safety: call start(), stop() and the destructor from one thread; any thread may call the other methods.
class Server {
public:
    /// Loads the models, which may take long. Throws std::invalid_argument for contradictory or unsafe options,
    /// std::runtime_error for a model that cannot be loaded.
    Server(Registry registry, ServerOptions options = {});
    ~Server();  ///< stop() with a drain time of 0; does nothing in a forked child
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    /// Binds the addresses and starts to serve. Throws std::system_error with the address. Does not block. If the
    /// server has a local channel, the first start() in a process installs a handler for SIGBUS. It handles faults in
    /// shared memory, and passes all other faults to the previous handler.
    void start();
    /// Calls start(), blocks until the process gets SIGTERM or SIGINT, and returns the result of stop(drain_time). A
    /// second signal has its previous effect: usually it ends the process.
    /// Throws the errors of start(), and std::logic_error if another server of the process is in run().
    bool run(std::chrono::milliseconds drain_time = std::chrono::seconds(10));
    int port() const;               ///< the bound TCP port
    std::string url() const;        ///< "http://127.0.0.1:2537", https with TLS, or "unix:/path" without TCP
    std::size_t functions() const;  ///< number of functions that can be called now, including those of models

    /// Stops the server: answers calls and model loads in flight, and rejects new calls with -32009. Blocks for at most
    /// `drain_time` and a few seconds; longer if an object's destructor or the end of a session blocks. Returns false
    /// if something did not end in time.
    bool stop(std::chrono::milliseconds drain_time);

    /// Sets a callback for the end of sessions; its argument is the session's id, not its token. Call it before
    /// start(). The callback must not block.
    void on_session_closed(std::function<void(std::string_view)> closed);

private:
    friend class NamedTensorCopy;
    friend class Node;
    server::Services& services() const;

    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor
