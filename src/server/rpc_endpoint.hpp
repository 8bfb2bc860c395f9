#pragma once

#include "http/server.hpp"
#include "json_rpc/parse.hpp"
#include "server/builtins.hpp"
#include "server/local_clients.hpp"
#include "server/message_references.hpp"
#include "server/reply.hpp"
#include "server/way_totals.hpp"

namespace shared_tensor::server {

/// POST /jsonrpc: one message in, one answer out. Thread-safe; answer() blocks until all of its calls have ended, their
/// deadline is past or the client is gone.
class RpcEndpoint {
public:
    RpcEndpoint(service::Dispatcher& dispatcher, const Builtins& builtins, Sessions& sessions,
                const LocalClients& local, ServerValues values, WayTotals& ways, json_rpc::ParseLimits parsing,
                ReplyLimits replies, std::string epoch)
        : dispatcher_(&dispatcher),
          builtins_(&builtins),
          sessions_(&sessions),
          local_(&local),
          values_(std::move(values)),
          ways_(&ways),
          parsing_(parsing),
          replies_(replies),
          epoch_(std::move(epoch)) {}

    http::Response answer(const http::Request& request, const Principal& principal, http::Exchange& exchange) const;

private:
    struct Item;     // one request of the message, from its start to its outcome
    struct Message;  // what its items share
    class Flow;      // of a batch whose items need each other

    http::Response answer_message(Message& message, json_rpc::Message parsed, const CallMeta& defaults) const;
    http::Response answer_one(Message& message, Item& item) const;
    http::Response answer_batch(Message& message, std::vector<Item>& items) const;
    void start_all(Message& message, std::vector<Item>& items, const CallMeta& defaults) const;
    void start(Message& message, Item& item, const CallMeta& defaults) const;
    bool enter_session(Message& message, Item& item) const;
    void offer_url(const Principal& principal, Item& item) const;
    static const tensor::Media& media_of(const Item& item);
    void start_call(Message& message, Item& item) const;
    service::OutcomePointer run_builtin(Message& message, Item& item, const Builtins::Method& method) const;
    void finish(Message& message, Item& item) const;
    void print(Message& message, Item& item, std::string& json) const;

    service::Dispatcher* dispatcher_;
    const Builtins* builtins_;
    Sessions* sessions_;
    const LocalClients* local_;
    const ServerValues values_;
    WayTotals* ways_;
    json_rpc::ParseLimits parsing_;
    ReplyLimits replies_;
    std::string epoch_;
};

}  // namespace shared_tensor::server
