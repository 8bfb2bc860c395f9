#pragma once

#include "http/server.hpp"
#include "json_rpc/parse.hpp"
#include "server/builtins.hpp"
#include "server/message_references.hpp"
#include "server/recipient.hpp"
#include "server/reply.hpp"
#include "server/stream_answer.hpp"
#include "server/way_totals.hpp"

namespace shared_tensor::server {

/// JSON-RPC messages, of POST /jsonrpc and of WebSockets: one in, one answer out. Thread-safe; answer() blocks until
/// all of its calls have ended, their deadline is past or the client is gone.
class RpcEndpoint {
public:
    RpcEndpoint(service::Dispatcher& dispatcher, const Builtins& builtins, const Recipients& recipients,
                const ServerValues& values, WayTotals& ways, const StreamOpener& opener, json_rpc::ParseLimits parsing,
                ReplyLimits replies)
        : dispatcher_(&dispatcher),
          builtins_(&builtins),
          recipients_(&recipients),
          values_(&values),
          ways_(&ways),
          streaming_(opener, replies),
          parsing_(parsing),
          replies_(replies) {}

    /// `is_frame`: the body is JSON with tensors behind it; else it is JSON.
    http::Response answer(const http::Request& request, bool is_frame, const Principal& principal,
                          http::Exchange& exchange) const;

    /// What the method of a request names: a method of the daemon's own, a shared function, or nothing.
    struct Target {
        const Builtins::Method* builtin = nullptr;
        service::FunctionTable::EntryPointer function{};
        bool streams() const { return function != nullptr && function->streams; }
    };
    Target find(std::string_view method) const;

    /// A message, and the bytes of its tensors.
    struct Received {
        json_rpc::Message message;
        tensor::Incoming tensors;
        std::optional<Target> target{};  ///< of its only request, where the caller has looked it up
    };
    std::variant<json_rpc::Message, json_rpc::Response> parse(std::string_view json) const;
    /// For a message on a WebSocket the answer's status has no meaning, but for 204: there is no answer.
    http::Response answer(Received received, const CallDefaults& defaults, const Principal& principal,
                          http::Exchange& exchange) const;

private:
    struct Item;     // one request of the message, from its start to its outcome
    struct Message;  // what its items share
    class Flow;      // of a batch whose items need each other

    http::Response answer_items(Message& message, Received received, const CallMeta& defaults) const;
    http::Response answer_one(Message& message, Item& item) const;
    http::Response answer_batch(Message& message, std::vector<Item>& items) const;
    void start_all(Message& message, std::vector<Item>& items, const CallMeta& defaults) const;
    void start(Message& message, Item& item, const CallMeta& defaults) const;
    static bool may_borrow(const FunctionOptions& options, const Item& item);
    void start_call(Message& message, Item& item) const;
    service::OutcomePointer run_builtin(Message& message, Item& item, const Builtins::Method& method) const;
    void finish(Message& message, Item& item) const;
    void print(Message& message, Item& item, json_rpc::LongText& json) const;

    service::Dispatcher* dispatcher_;
    const Builtins* builtins_;
    const Recipients* recipients_;
    const ServerValues* values_;
    WayTotals* ways_;
    const StreamAnswer streaming_;
    json_rpc::ParseLimits parsing_;
    ReplyLimits replies_;
};

}  // namespace shared_tensor::server
