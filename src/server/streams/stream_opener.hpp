#pragma once

#include <memory>
#include <span>
#include <variant>

#include "runtime/calls/dispatcher.hpp"
#include "server/streams/stream_call.hpp"

namespace shared_tensor::server {

/// Makes and starts calls that stream. All its references must outlive it. Thread-safe.
struct StreamOpener {
    runtime::Dispatcher& dispatcher;
    const ReplyContexts& reply_contexts;
    const ServerValues& values;
    TransportTotals& transports;
    streams::Window window;     ///< for the streams that functions read
    std::size_t max_item_json;  ///< limit of an item that functions write

    using Function = runtime::FunctionTable::EntryPointer;
    /// Makes a call of `function`, which takes streams. The call sends its messages through `out`. Returns an error if
    /// the client may not call it, if its options are invalid, or if no transport that it accepts can carry the result.
    std::variant<std::shared_ptr<StreamCall>, json_rpc::Error> make(const json_rpc::Request& request,
                                                                    const Function& function, const CallMeta& defaults,
                                                                    const Principal& principal,
                                                                    std::shared_ptr<MessageOut> out) const;
    /// Reads the arguments of the call and makes the call ready to run.
    std::variant<runtime::StreamRun, json_rpc::Error> open(const std::shared_ptr<StreamCall>& call,
                                                           const json_rpc::Request& request, const Function& function,
                                                           tensor::Incoming tensors) const;
};

}  // namespace shared_tensor::server
