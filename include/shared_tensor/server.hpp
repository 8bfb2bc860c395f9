#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/limits.hpp>
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

/// Where a server listens, what it shares and what it bounds. The defaults are safe: loopback, the server's own user
/// (or root) only. Where 0 stands for a value that depends on the machine, the server takes that value when it is made.
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
    /// changes, within 3 s: a client whose token is gone, or allows something else now, is disconnected.
    std::string token_file;
    /// Of the TCP port. With authorities, clients need a certificate of theirs; without tokens it says who they are.
    TlsOptions tls;
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
    /// What server.info tells of the service that runs here.
    std::string service_name, service_version;

    std::size_t torch_threads = 0;                 ///< of each thread that calls libtorch; 0: max(1, cores / workers)
    std::chrono::milliseconds drain_time{10'000};  ///< how long calls in flight may take when the daemon ends
    std::chrono::milliseconds max_wait{30'000};    ///< task.wait, task.result and tensor.watch, a request
    /// Content codings of answers and files for clients that accept one, in order of choice: "zstd, gzip"; "none".
    /// Tensors inside messages are compressed by zstd only, if it is in the list.
    CompressionOptions compression{.codings = "zstd, gzip"};

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
    /// Raises the process's limit of open files from the soft to the hard one when the server is made; the daemon does.
    bool raise_descriptor_limit = false;
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
