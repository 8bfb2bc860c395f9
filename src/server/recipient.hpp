#pragma once

#include <memory>
#include <optional>
#include <string>

#include "json_rpc/message.hpp"
#include "server/call_meta.hpp"
#include "server/handle_grants.hpp"
#include "server/local_clients.hpp"
#include "server/message_references.hpp"
#include "server/principal.hpp"
#include "server/sessions.hpp"
#include "server/url_media.hpp"

namespace shared_tensor::server {

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
