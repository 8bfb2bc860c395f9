#pragma once

// What a message and its items are while RpcEndpoint answers them.

#include <memory>
#include <string>
#include <vector>

#include "server/client_watch.hpp"
#include "server/message_references.hpp"
#include "server/rpc_endpoint.hpp"

namespace shared_tensor::server {

struct RpcEndpoint::Message {
    const Principal& principal;
    ClientWatch client;
    tensor::TensorExchange exchange;
    MessageReferences references;
    SteadyTime begun;
    SteadyTime wait_end;
};

struct RpcEndpoint::Item {
    json_rpc::Request request{};
    Recipient to{};
    std::optional<Target> target{};                        // none until it is looked up
    std::shared_ptr<service::Execution::Waiter> waiter{};  // shared with the watch of the client
    SteadyTime deadline{};
    service::OutcomePointer outcome{};
    std::vector<std::size_t> inputs{};  // items of the batch whose results it names
    bool wanted = false;                // others name its result
    bool started = false;
    std::chrono::nanoseconds queue{0}, compute{0};  // how long it waited to run, and what its function took

    const Builtins::Method* builtin() const { return target ? target->builtin : nullptr; }
    json_rpc::Json id() const { return request.id.value_or(nullptr); }
};

}  // namespace shared_tensor::server
