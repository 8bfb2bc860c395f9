#pragma once

// The state of a message and of its items while RpcEndpoint answers them.

#include <memory>
#include <string>
#include <vector>

#include "server/rpc/client_watch.hpp"
#include "server/rpc/reply_context.hpp"
#include "server/rpc/rpc_endpoint.hpp"

namespace shared_tensor::server {

struct RpcEndpoint::Message {
    const Principal& principal;
    ClientWatch client;
    tensor::TensorTransfer transfer;
    MessageReferences references;
    SteadyTime begun;
    SteadyTime wait_end;
};

struct RpcEndpoint::Item {
    json_rpc::Request request{};
    ReplyContext to{};
    std::optional<Target> target{};                        // none until it is looked up
    std::shared_ptr<runtime::Execution::Waiter> waiter{};  // shared with the ClientWatch
    SteadyTime deadline{};
    runtime::OutcomePointer outcome{};
    std::vector<std::size_t> inputs{};  // the items of the batch whose results it uses
    bool wanted = false;                // other items use its result
    bool started = false;
    std::chrono::nanoseconds queue{0}, compute{0};  // how long it waited to run, and how long its function ran

    const Builtins::Method* builtin() const { return target ? target->builtin : nullptr; }
    json_rpc::Json id() const { return request.id.value_or(nullptr); }
};

}  // namespace shared_tensor::server
