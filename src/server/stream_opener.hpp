#pragma once

#include <memory>
#include <span>
#include <variant>

#include "server/stream_call.hpp"
#include "service/dispatcher.hpp"

namespace shared_tensor::server {

/// Makes and starts calls that stream. Its parts outlive it. Thread-safe.
struct StreamOpener {
    service::Dispatcher& dispatcher;
    const Recipients& recipients;
    const ServerValues& values;
    WayTotals& ways;
    streams::Window window;     ///< of what functions read
    std::size_t max_item_json;  ///< of what they write

    using Function = service::FunctionTable::EntryPointer;
    /// A call of `function`, which takes streams; its messages go by `out`. An error for a client that cannot be told
    /// its result.
    std::variant<std::shared_ptr<StreamCall>, json_rpc::Error> make(const json_rpc::Request& request,
                                                                    const Function& function, const CallMeta& defaults,
                                                                    const Principal& principal,
                                                                    std::shared_ptr<MessageOut> out) const;
    /// Reads its arguments and makes it ready to run.
    std::variant<service::StreamRun, json_rpc::Error> open(const std::shared_ptr<StreamCall>& call,
                                                           const json_rpc::Request& request, const Function& function,
                                                           tensor::Incoming tensors) const;
};

}  // namespace shared_tensor::server
