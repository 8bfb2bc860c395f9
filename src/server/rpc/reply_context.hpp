#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "net/message/message.hpp"
#include "protocol/json_rpc/message.hpp"
#include "runtime/tables/object_table.hpp"
#include "server/auth/principal.hpp"
#include "server/files/url_transports.hpp"
#include "server/local/local_clients.hpp"
#include "server/local/sessions.hpp"
#include "server/rpc/message_references.hpp"
#include "streams/windows.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::server {

/// The options of a call: from HTTP headers, overridden by the "meta" member of the request object.
struct CallMeta {
    tensor::ExportPolicy policy;
    std::optional<std::chrono::milliseconds> timeout;
    std::string idempotency_key;
    std::string session;
    streams::Window stream_window;  ///< for the streams that the caller reads
};

/// The options that the headers of a request, or of a WebSocket's handshake, set for all calls that come with it. If
/// the headers are invalid: the error that answers each message.
using CallDefaults = std::variant<CallMeta, json_rpc::Error>;
CallDefaults read_headers(const net::Headers& headers);

/// Returns the id of a request for the log, shortened; empty for a notification.
std::string id_text(const std::optional<json_rpc::Json>& id);

/// Overrides the defaults in `result` by the options in `meta`. Returns an error if `meta` is invalid.
std::optional<json_rpc::Error> read_meta(const json_rpc::Json& meta, CallMeta& result);

/// The reader of an answer already has as many handles as it may have.
class TooManyHandles : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The handles that one answer issues to its reader. Not thread-safe.
class IssuedHandles {
public:
    IssuedHandles(runtime::ObjectTable& objects, Sessions& sessions, runtime::HandleOwner owner)
        : objects_(&objects), sessions_(&sessions), owner_(std::move(owner)) {}

    /// Issues a handle of `object`. Returns the JSON for "$object" in the answer. Throws TooManyHandles.
    codec::Json describe(const ObjectPointer& object);
    /// Ends all handles issued so far. Call it when the answer is not sent, because its reader never learns their ids.
    void take_back();

private:
    runtime::ObjectTable* objects_;
    Sessions* sessions_;
    runtime::HandleOwner owner_;
    std::vector<std::string> granted_;
};

/// The reply context of a request: its options, its session, and the transports between its client and the server.
struct ReplyContext {
    CallMeta meta{};
    std::string state_session{};                 // the session for stateful functions; empty: none
    std::shared_ptr<LocalClient> client{};       // its local channel, which shares memory; null: none
    std::unique_ptr<const UrlTransports> url{};  // the transport `url`; null: the client did not ask for it
    FaultWatch memory{};                         // watches memory of `client`; made before that memory is read

    const tensor::Transports& transports() const;
    /// Returns why no tensor can be sent now: the client accepts shared memory only, and none is left. Empty if tensors
    /// can be sent.
    std::string busy() const;
};

/// Makes the reply contexts of requests. Thread-safe. All arguments of the constructor must outlive it.
class ReplyContexts {
public:
    ReplyContexts(Sessions& sessions, const LocalClients& local, const ServerValues& values)
        : sessions_(&sessions), local_(&local), values_(&values) {}

    /// Fills in `reply_context`. `meta` is the "meta" member of the request. Returns an error if `meta` is invalid, or
    /// if it names a session that the principal does not have.
    std::optional<json_rpc::Error> find(const Principal& principal, const CallMeta& defaults,
                                        const json_rpc::Json& meta, ReplyContext& reply_context) const;
    /// Makes the object that issues handles to the client for one message.
    IssuedHandles issued(const Principal& principal, const ReplyContext& reply_context) const;

private:
    bool enter_session(const Principal& principal, ReplyContext& reply_context) const;
    void offer_url(const Principal& principal, ReplyContext& reply_context) const;

    Sessions* sessions_;
    const LocalClients* local_;
    const ServerValues* values_;
};

}  // namespace shared_tensor::server
