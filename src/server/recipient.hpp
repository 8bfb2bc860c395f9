#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "http/message.hpp"
#include "json_rpc/message.hpp"
#include "server/local_clients.hpp"
#include "server/message_references.hpp"
#include "server/principal.hpp"
#include "server/sessions.hpp"
#include "server/url_media.hpp"
#include "service/object_table.hpp"
#include "streams/window.hpp"
#include "tensor/exchange.hpp"

namespace shared_tensor::server {

/// What comes with a call beside its parameters: HTTP headers, overridden by the request object's "meta".
struct CallMeta {
    tensor::ExportPolicy policy;
    std::optional<std::chrono::milliseconds> timeout;
    std::string idempotency_key;
    std::string session;
    streams::Window stream_window;  ///< of the streams that the caller reads
};

/// What the headers of a request, or of a WebSocket's handshake, say for all calls that come with it. An error is the
/// answer to each message.
using CallDefaults = std::variant<CallMeta, json_rpc::Error>;
CallDefaults read_headers(const http::Headers& headers);

/// The id of a request as the log shows it, shortened; empty for a notification.
std::string id_text(const std::optional<json_rpc::Json>& id);

/// One item's own, into `result`, which is the defaults: what its "meta" says instead. The error, if there is one.
std::optional<json_rpc::Error> read_meta(const json_rpc::Json& meta, CallMeta& result);

/// The reader of an answer may not have a further handle.
class TooManyHandles : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The handles that one answer gives to its reader. One thread at a time.
class HandleGrants {
public:
    HandleGrants(service::ObjectTable& objects, Sessions& sessions, service::HandleOwner owner)
        : objects_(&objects), sessions_(&sessions), owner_(std::move(owner)) {}

    /// What stands behind "$object" in the answer. Throws TooManyHandles.
    codec::Json describe(const ObjectPointer& object);
    /// The answer does not go out: nobody will know of them.
    void take_back();

private:
    service::ObjectTable* objects_;
    Sessions* sessions_;
    service::HandleOwner owner_;
    std::vector<std::string> granted_;
};

/// Who gets the answer to a request, and how tensors and objects cross between them and us.
struct Recipient {
    CallMeta meta{};
    std::string state_session{};            // of its calls of stateful functions; empty: none
    std::shared_ptr<LocalClient> client{};  // whose memory can be shared; null: no local channel
    std::unique_ptr<const UrlMedia> url{};  // where a result may stay in the server
    FaultWatch memory{};                    // of what `client` offered, from before anything of it was read

    const tensor::Media& media() const;
    /// Why no tensor at all can be handed over just now: it takes them by shared memory only, and there is none left.
    /// Empty: nothing is in the way.
    std::string busy() const;
};

/// Finds out. Thread-safe; all of its parts outlive it.
class Recipients {
public:
    Recipients(Sessions& sessions, const LocalClients& local, const ServerValues& values)
        : sessions_(&sessions), local_(&local), values_(&values) {}

    /// `meta` is the request's own member. An error for one that cannot be read, or a session that is none of the
    /// principal's.
    std::optional<json_rpc::Error> find(const Principal& principal, const CallMeta& defaults,
                                        const json_rpc::Json& meta, Recipient& recipient) const;
    /// The handles of one message to them.
    HandleGrants grants(const Principal& principal, const Recipient& recipient) const;

private:
    bool enter_session(const Principal& principal, Recipient& recipient) const;
    void offer_url(const Principal& principal, Recipient& recipient) const;

    Sessions* sessions_;
    const LocalClients* local_;
    const ServerValues* values_;
};

}  // namespace shared_tensor::server
