#pragma once

// Calls functions of a shared-tensor-server.
//
//     Client client("http://127.0.0.1:2537");           // or "unix:/run/shared-tensor.sock"
//     double sum = client.call<double>("add", 1, 2);
//     at::Tensor y = client.call<at::Tensor>("scale", named("x", x), named("factor", 3.0));
//
// Arguments and results are everything that a shared function may take and return: scalars, strings, Bytes, containers,
// structs with SHARED_TENSOR_FIELDS, nlohmann::json with <shared_tensor/json.hpp>, tensors anywhere inside. Tensors
// are sent from their own memory, and results view the received bytes. Arguments that are known at run time only go as
// one object: CallArguments.

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

#include <shared_tensor/batch.hpp>
#include <shared_tensor/client_options.hpp>
#include <shared_tensor/detail/call.hpp>
#include <shared_tensor/error.hpp>
#include <shared_tensor/receipt.hpp>
#include <shared_tensor/stream_call.hpp>
#include <shared_tensor/task.hpp>

namespace shared_tensor {

namespace client {
class Core;
struct Session;
}  // namespace client

class NamedTensors;
template <class Signature>
class RemoteFunction;

/// What a server says about itself.
struct ServerInfo {
    std::string name, version;
    std::string epoch;  ///< another one after every start of the server
    std::chrono::milliseconds uptime{0};
    std::string json;  ///< all that server.info answered, as JSON text
};

/// One way by which tensors can cross between a client and its server.
struct WayInfo {
    std::string name;  ///< "shm", "cuda_ipc", "body", ...
    bool usable = false;
    std::string reason;  ///< why not, for people
};

/// A connection pool to one server, and how its calls are to be made.
///
/// Ownership: a handle: copies, and what with() and new_session() return, share the pool and its statistics; the last
/// one closes the connections. Thread safety: all methods from any thread.
/// A forked child may use its copies: it has connections and sessions of its own (docs/threads.md).
/// Blocking: every call blocks until its answer is there, its time is over or CallOptions::stop is requested; nothing
/// connects before the first call.
/// Errors: RpcError and its children; InvalidValue or std::invalid_argument for an argument that cannot be sent.
class Client {
public:
    /// The server of the environment (ClientOptions::url).
    Client();
    /// Throws std::invalid_argument for a url that is none, or empty.
    explicit Client(std::string url);
    explicit Client(ClientOptions options);

    /// Throws the server's error, TransportFailure, DeadlineExceeded, Cancelled, or ResultMismatch when the result is
    /// no R.
    template <class R = void, class... Args>
    R call(std::string_view method, const Args&... args) const {
        detail::ResultOf<R> result;
        call_into(method, detail::ArgumentsOf<Args...>(args...), result);
        return result.take();
    }

    /// The same, with a receipt: which transports the tensors took, how many bytes were copied, and how long what took.
    /// `receipt` begins empty, and is filled when this returns or throws.
    template <class R = void, class... Args>
    R call(Receipt& receipt, std::string_view method, const Args&... args) const {
        detail::ResultOf<R> result;
        call_into(method, detail::ArgumentsOf<Args...>(args...), result, &receipt);
        return result.take();
    }

    /// A function of the server by its C++ signature: `auto add = client.function<double(double, double)>("add");`,
    /// then `add(1, 2)`. Nothing is sent before the first call.
    template <class Signature>
    RemoteFunction<Signature> function(std::string name) const {
        return {*this, std::move(name)};
    }

    /// A call without an answer: returns when the server has taken it. Its errors are known to nobody.
    template <class... Args>
    void notify(std::string_view method, const Args&... args) const {
        send_notification(method, detail::ArgumentsOf<Args...>(args...));
    }

    /// Starts the call as a task and returns at once. Safe to repeat of itself: it carries an idempotency key.
    template <class R = void, class... Args>
    Task<R> submit(std::string_view method, const Args&... args) const {
        return {*this, submit_task(method, detail::ArgumentsOf<Args...>(args...))};
    }

    /// A task that was submitted elsewhere.
    template <class R = void>
    Task<R> task(std::string id) const {
        return {*this, std::move(id)};
    }

    /// Calls a function that streams (<shared_tensor/stream.hpp>), over a connection of its own; returns when it is
    /// about to run. CallOptions::timeout is the deadline of the whole, none without it. Not repeated by itself once
    /// the server has it. Throws as call() does.
    template <class R = void, class... Args>
    StreamCall<R> stream(std::string_view method, const Args&... args) const {
        return StreamCall<R>(open_stream(method, detail::ArgumentsOf<Args...>(args...)));
    }

    Batch batch() const;

    /// The same client with other options for its calls; `options` replaces all of them but the session, which stays
    /// unless named.
    Client with(CallOptions options) const;

    const CallOptions& options() const { return options_; }

    /// A client with a session of its own in the server: stateful models keep their state from call to call, apart from
    /// everybody else's. The session ends with the last copy; the server ends it after 10 minutes without a call.
    Client new_session() const;
    /// The session's token, empty without one. In a forked child of a client from new_session() the child's session:
    /// the first call opens it, as any other call of the child would.
    const std::string& session() const;

    /// An uninitialised, contiguous CPU tensor in memory that this client shares with its server: as an argument it is
    /// handed over without a copy, as often as you like. `dtype` is a DType, or a framework's own name for one
    /// (at::kFloat): then the result is that framework's tensor. Where no memory is shared (another host, no local
    /// channel): ordinary memory. A function that was given it sees what is written to it until the call was answered,
    /// and nothing that is written later.
    template <class T>
    typename DTypeAdapter<T>::Tensor empty_shared(std::span<const std::int64_t> shape, T dtype) const {
        return make_tensor(shape, DTypeAdapter<T>::to_dtype(dtype));
    }
    template <class T>
    typename DTypeAdapter<T>::Tensor empty_shared(std::initializer_list<std::int64_t> shape, T dtype) const {
        return empty_shared(std::span(shape.begin(), shape.size()), dtype);
    }

    /// Which ways tensors can go between this process and the server, and for each of the others why not.
    std::vector<WayInfo> ways() const;

    ServerInfo info() const;
    /// What the server offers, as the JSON text of an OpenRPC document (rpc.discover).
    std::string discover() const;
    /// The time of one small round trip.
    std::chrono::nanoseconds ping() const;

    std::string url() const;
    ClientStatistics statistics() const;

    /// Ends all calls in flight, of all copies, with TransportFailure; so do all later ones.
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

/// A function of a server, called like one of this process. Arguments are converted to the types of the signature.
///
/// Ownership: it keeps a copy of its client. Thread safety, blocking and errors: as Client::call().
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
