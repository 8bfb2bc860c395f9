#pragma once

// Calls functions of a shared-tensor-server.
//
//     Client client("http://127.0.0.1:2537");           // or "unix:/run/shared-tensor.sock"
//     double sum = client.call<double>("add", 1, 2);
//     at::Tensor y = client.call<at::Tensor>("scale", named("x", x), named("factor", 3.0));
//
// Arguments and results may have all types that a shared function may take and return: scalars, strings, Bytes,
// containers, structs with SHARED_TENSOR_FIELDS, nlohmann::json with <shared_tensor/json.hpp>, and tensors inside any
// of these except JSON. Tensors are sent from their own memory, and results view the received bytes. Arguments
// that are known only at run time are passed as one object: CallArguments.

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shared_tensor/client/batch.hpp>
#include <shared_tensor/client/options.hpp>
#include <shared_tensor/client/stream_call.hpp>
#include <shared_tensor/client/task.hpp>
#include <shared_tensor/detail/call.hpp>
#include <shared_tensor/error.hpp>

namespace shared_tensor {

namespace client {
class Core;
class Session;
}  // namespace client

class NamedTensors;
template <class Signature>
class RemoteFunction;

/// The answer of server.info.
struct ServerInfo {
    std::string name, version;
    std::string epoch;  ///< a new value after every start of the server
    std::chrono::milliseconds uptime{0};
    std::string json;  ///< the complete answer, as JSON text
};

/// A transport of tensors between a client and its server.
struct TransportInfo {
    std::string name;  ///< "shm", "cuda_ipc", "body", ...
    bool usable = false;
    std::string reason;  ///< why it is not usable, for people
};

/// A connection pool to one server, and options for its calls.
///
/// Ownership: a handle. Copies, and the clients that with() and new_session() return, share the pool and its
/// statistics; the last of them closes the connections. Thread safety: any thread may call any method.
/// A forked child may use its copies: they make their own connections and sessions (docs/threads.md).
/// Blocking: every call blocks until its answer is there, its timeout is over or CallOptions::stop is requested. The
/// first call connects, not the constructor. Errors: RpcError and its children; InvalidValue or std::invalid_argument
/// for an argument that cannot be sent.
class Client {
public:
    /// A client of the server that the environment names (ClientOptions::url).
    Client();
    /// Throws std::invalid_argument if the url is malformed or empty.
    explicit Client(std::string url);
    explicit Client(ClientOptions options);

    /// Calls a function. Throws the server's error, TransportFailure, DeadlineExceeded, Cancelled, or ResultMismatch if
    /// the result is not an R.
    template <class R = void, class... Args>
    R call(std::string_view method, const Args&... args) const {
        detail::ResultOf<R> result;
        call_into(method, detail::ArgumentsOf<Args...>(args...), result);
        return result.take();
    }

    /// As call(), and fills in `receipt`: the transports of the tensors, the number of copied bytes, and the times. Its
    /// old content is replaced when call() returns or throws.
    template <class R = void, class... Args>
    R call(Receipt& receipt, std::string_view method, const Args&... args) const {
        detail::ResultOf<R> result;
        call_into(method, detail::ArgumentsOf<Args...>(args...), result, &receipt);
        return result.take();
    }

    /// Returns a callable object for a function of the server. Sends nothing before its first call. Example:
    /// `auto add = client.function<double(double, double)>("add");`, then `add(1, 2)`.
    template <class Signature>
    RemoteFunction<Signature> function(std::string name) const {
        return {*this, std::move(name)};
    }

    /// Calls a function without waiting for it: returns when the server has accepted the call. Its result and its
    /// errors are dropped.
    template <class... Args>
    void notify(std::string_view method, const Args&... args) const {
        send_notification(method, detail::ArgumentsOf<Args...>(args...));
    }

    /// Starts the call as a task and returns when the server has accepted it. Always safe to repeat, because the
    /// request has an idempotency key.
    template <class R = void, class... Args>
    Task<R> submit(std::string_view method, const Args&... args) const {
        return {*this, submit_task(method, detail::ArgumentsOf<Args...>(args...))};
    }

    /// A handle of a task that was submitted elsewhere.
    template <class R = void>
    Task<R> task(std::string id) const {
        return {*this, std::move(id)};
    }

    /// Calls a function with streams (<shared_tensor/stream.hpp>) on a connection of its own, and returns when the
    /// server is about to run it. CallOptions::timeout is the deadline of the whole call; without it there is no
    /// deadline. The client does not repeat the call once it was sent. Throws the errors of call().
    template <class R = void, class... Args>
    StreamCall<R> stream(std::string_view method, const Args&... args) const {
        return StreamCall<R>(open_stream(method, detail::ArgumentsOf<Args...>(args...)));
    }

    Batch batch() const;

    /// Returns a client on the same pool with other options for its calls. `options` replaces all options; an empty
    /// `session` keeps the session of this client.
    Client with(CallOptions options) const;

    const CallOptions& options() const { return options_; }

    /// Returns a client with a new session in the server. A stateful model has its own state in each session, and keeps
    /// it from call to call. The session ends with the last copy of the client, or after 10 minutes without a call.
    Client new_session() const;
    /// The session's token; empty without a session. In a forked child, a client from new_session() has a session of
    /// the child: this method or the child's first call opens it.
    const std::string& session() const;

    /// Makes an uninitialised, contiguous CPU tensor in memory that this client shares with its server. As an argument
    /// it is passed without a copy, any number of times. `dtype` is a DType, or a framework's name for a dtype
    /// (at::kFloat): then the result is a tensor of this framework. Without shared memory (another host, no local
    /// channel) the tensor lies in ordinary memory. A function that takes it as an argument sees writes until the call
    /// is answered, and no later writes.
    template <class T>
    typename DTypeAdapter<T>::Tensor empty_in_shared_memory(std::span<const std::int64_t> shape, T dtype) const {
        return make_tensor(shape, DTypeAdapter<T>::to_dtype(dtype));
    }
    template <class T>
    typename DTypeAdapter<T>::Tensor empty_in_shared_memory(std::initializer_list<std::int64_t> shape, T dtype) const {
        return empty_in_shared_memory(std::span(shape.begin(), shape.size()), dtype);
    }

    /// The transports between this process and the server; for each unusable transport, the reason.
    std::vector<TransportInfo> transports() const;

    ServerInfo info() const;
    /// The server's functions, as the JSON text of an OpenRPC document (rpc.discover).
    std::string discover() const;
    /// Measures one small round trip.
    std::chrono::nanoseconds ping() const;

    std::string url() const;
    ClientStatistics statistics() const;

    /// Aborts the calls in flight of all copies with TransportFailure. Later calls fail in the same way. Tensors of
    /// batches and streams that arrived, and were not read before, may be lost: reading them throws TensorExpired.
    void shutdown() const;

private:
    friend class NamedTensors;
    friend class TaskHandle;
    Client(std::shared_ptr<client::Core> core, std::shared_ptr<client::Session> session, CallOptions options);

    // What the templates stand on.
    void call_into(std::string_view method, const CallArguments& arguments, detail::ResultSlot& result,
                   Receipt* receipt = nullptr) const;
    void send_notification(std::string_view method, const CallArguments& arguments) const;
    std::string submit_task(std::string_view method, const CallArguments& arguments) const;
    std::shared_ptr<detail::CallerStreams> open_stream(std::string_view method, const CallArguments& arguments) const;
    TensorRef make_tensor(std::span<const std::int64_t> shape, DType dtype) const;

    std::shared_ptr<client::Core> core_;
    std::shared_ptr<client::Session> session_;
    CallOptions options_;
};

/// A server's function as a callable object. Arguments are converted to the types of the signature.
///
/// Ownership: it keeps a copy of its client. Thread safety, blocking and errors: see Client::call().
template <class R, class... Args>
class RemoteFunction<R(Args...)> {
public:
    RemoteFunction(Client client, std::string name) : client_(std::move(client)), name_(std::move(name)) {}

    R operator()(const std::remove_cvref_t<Args>&... args) const { return client_.template call<R>(name_, args...); }

    const std::string& name() const { return name_; }

private:
    Client client_;
    std::string name_;
};

}  // namespace shared_tensor
