#pragma once

#include "base/log/current_call.hpp"
#include "net/server/server.hpp"
#include "protocol/json_rpc/message.hpp"
#include "server/methods/methods.hpp"
#include "server/rpc/client_watch.hpp"
#include "server/rpc/reply.hpp"
#include "server/rpc/reply_context.hpp"
#include "server/streams/stream_call.hpp"

namespace shared_tensor::server {

/// Answers JSON-RPC messages from POST /jsonrpc and from WebSockets. Thread-safe. answer() blocks until all calls of
/// the message have ended, their deadline is over, or the client is gone.
class RpcEndpoint {
public:
    /// The arguments must outlive it.
    RpcEndpoint(Services& all, const Builtins& builtins) : all_(&all), builtins_(&builtins) {}

    /// `is_frame`: the body is JSON followed by tensors; else it is only JSON.
    net::Response answer(const net::Request& request, bool is_frame, const Principal& principal,
                         net::ResponseStream& response_stream) const;

    /// The target of a method name: one of the daemon's own methods, a shared function, or neither.
    struct Target {
        const Builtins::Method* builtin = nullptr;
        runtime::FunctionTable::EntryPointer function{};
        bool streams() const { return function != nullptr && function->streams; }
        runtime::CallStats* stats() const {
            return builtin != nullptr    ? builtin->stats.get()
                   : function != nullptr ? &function->run_time->calls
                                         : nullptr;
        }
    };
    Target find(std::string_view method) const;

    /// A parsed message, and the bytes of its tensors.
    struct Received {
        json_rpc::Message message;
        tensor::Incoming tensors;
        std::optional<Target> target{};  ///< of its only request, if the caller looked it up
    };
    /// Returns the request of a message; null for a batch or an invalid request.
    static auto only_request(auto& message) {
        return message.is_batch ? nullptr : std::get_if<json_rpc::Request>(&message.items.front());
    }
    std::variant<json_rpc::Message, json_rpc::Response> parse(std::string_view json) const;
    /// Answers a message of a WebSocket. The status of the answer means nothing there, except 204: there is no answer.
    net::Response answer(Received received, const CallDefaults& defaults, const Principal& principal,
                         net::ResponseStream& response_stream) const;

private:
    class Flow;  // runs a batch whose items use results of other items
    /// The state that the items of one message share.
    struct Message {
        const Principal& principal;
        ClientWatch client;
        tensor::TensorTransfer transfer;
        MessageReferences references;
        SteadyTime begun;
        SteadyTime wait_end;
        bool is_batch = false;
    };

    /// One request of a message, from its start to its outcome.
    struct Item {
        json_rpc::Request request{};
        std::string id_as_text{};  // for the log, as `tensors`
        tensor::TensorTransfer::Counts tensors{};
        ReplyContext to{};
        std::optional<Target> target{};                        // none until it is looked up
        std::unique_ptr<runtime::Execution::Waiter> waiter{};  // null: it waits for no call
        SteadyTime deadline{};
        runtime::OutcomePointer outcome{};
        std::vector<std::size_t> inputs{};  // the items of the batch whose results it uses
        bool wanted = false;                // other items use its result
        bool started = false;
        bool answered = false;  // at its deadline, by another thread, while its function ran on this one
        std::chrono::nanoseconds queue{0}, compute{0};  // how long it waited to run, and how long its function ran

        const Builtins::Method* builtin() const { return target ? target->builtin : nullptr; }
        runtime::CallStats* stats() const { return target ? target->stats() : nullptr; }
        json_rpc::Json id() const { return request.id.value_or(nullptr); }
        CurrentCall as_current_call(const Principal& principal) const {
            const CallMeta& meta = to.meta;
            return {request.method,   principal.name,  meta.request_id, id_as_text, {},
                    meta.traceparent, meta.parent_span};
        }
    };
    class Work;   // one step of an item
    class Guard;  // of a call that runs on this thread

    net::Response answer_items(Message& message, Received received, const CallMeta& defaults) const;
    net::Response answer_one(Message& message, Item& item) const;
    net::Response answer_batch(Message& message, std::vector<Item>& items) const;
    void start_all(Message& message, std::vector<Item>& items, const CallMeta& defaults) const;
    void start(Message& message, Item& item, const CallMeta& defaults) const;
    static bool may_borrow(const FunctionOptions& options, const Item& item);
    void start_call(Message& message, Item& item) const;
    runtime::OutcomePointer run_builtin(Message& message, Item& item, const Builtins::Method& method) const;
    void finish(Message& message, Item& item) const;
    void print(Message& message, Item& item, json_rpc::LongText& json) const;
    void note_answered(const Message& message, Item& item, int code) const;
    net::Response reject(const json_rpc::Json& id, const json_rpc::Error& error) const;

    Services* all_;
    const Builtins* builtins_;
};

}  // namespace shared_tensor::server
