#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "net/message/message.hpp"
#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/message.hpp"
#include "runtime/calls/outcome.hpp"
#include "server/services.hpp"
#include "streams/stream_message.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::server {

/// The options of a call: from HTTP headers, overridden by the "meta" member of the request object.
struct CallMeta {
    tensor::ExportPolicy policy;
    std::optional<std::chrono::milliseconds> timeout;
    std::string idempotency_key;
    std::string session;
    std::string request_id, traceparent;  ///< for the log
    std::string parent_span;              ///< as OpenSpan::parent, after begin_span()
    streams::Window stream_window;        ///< for the streams that the caller reads
};

/// The options that the headers of a request, or of a WebSocket's handshake, set for all calls that come with it. If
/// the headers are invalid: the error that answers each message.
using CallDefaults = std::variant<CallMeta, json_rpc::Error>;
CallDefaults read_headers(const net::Headers& headers);

/// Returns the id of a request for the log, shortened; empty for a notification.
std::string id_text(const std::optional<json_rpc::Json>& id);

/// The reader of an answer already has as many handles as it may have.
class TooManyHandles : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The reply context of a request: its options, its session, and the transports between its client and the server.
struct ReplyContext {
    CallMeta meta{};
    std::string state_session{};            // the session for stateful functions; empty: none
    std::shared_ptr<LocalClient> client{};  // its local channel, which shares memory; null: none
    /// The transport `url`, and the transports with it; null: the client did not ask for it.
    std::unique_ptr<const tensor::Transport> url{};
    std::optional<tensor::Transports> with_url{};
    FaultWatch memory{};  // watches memory of `client`; made before that memory is read

    const tensor::Transports& transports() const;
    /// Returns why no tensor can be sent now: the client accepts shared memory only, and none is left. Empty if tensors
    /// can be sent.
    std::string busy() const;
};

/// Returns the lease holder of a `url` lease: the session, or the principal if the request names no session. It never
/// equals a client of the local channel, whose leases end with its process.
std::string url_lease_holder(std::string_view principal, std::string_view session);

/// Makes `meta` name a new span of the call, if there is tracing.
void begin_span(const Services& all, CallMeta& meta);

/// Makes the context of a request whose "meta" member is `meta`. Throws Rejected if `meta` is invalid, or if it names a
/// session that the principal does not have.
ReplyContext find_context(Services& all, const Principal& principal, const CallMeta& defaults,
                          const json_rpc::Json& meta);

/// The handles that one answer issues to its reader. Not thread-safe.
class IssuedHandles {
public:
    IssuedHandles(Services& all, const Principal& principal, const ReplyContext& reply_context);

    /// Issues a handle of `object`. Returns the JSON for "$object" in the answer. Throws TooManyHandles.
    codec::Json describe(const ObjectPointer& object);
    /// Ends all handles issued so far. Call it when the answer is not sent, because its reader never learns their ids.
    void take_back();

private:
    Services* all_;
    runtime::HandleOwner owner_;
    std::vector<std::string> granted_;
};

/// Resolves the references of one message: to results of earlier items of its batch, and to the principal's leases,
/// objects and named values. Copies nothing; but functions may copy what they read, and an item may refer to a result
/// that has another result several times. So the JSON of all values together is bounded by --max-reply-json-bytes. Not
/// thread-safe.
class MessageReferences final : public codec::References {
public:
    MessageReferences(Services& all, const Principal& principal);

    /// Adds the result of an item, for later items that refer to it. The item must not have failed.
    void set_item(const codec::Json& id, runtime::OutcomePointer outcome) { items_[id] = std::move(outcome); }

    // codec::References. Both throw InvalidValue for a malformed reference, value() throws Unresolved beyond the bound.
    std::shared_ptr<const codec::Value> value(const codec::Json& name) override;
    ObjectPointer object(const codec::Json& handle) override;

private:
    std::shared_ptr<const codec::Value> find(const codec::Json& name) const;
    std::shared_ptr<const codec::Value> lease(const std::string& id) const;

    Services* all_;
    const Principal* principal_;
    std::size_t bytes_left_;
    std::map<codec::Json, runtime::OutcomePointer> items_;
};

}  // namespace shared_tensor::server
