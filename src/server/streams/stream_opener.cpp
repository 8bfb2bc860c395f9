#include "server/streams/stream_opener.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace shared_tensor::server {

namespace {

/// For events: the client's connection slows the function down.
constexpr streams::Window kNoWindow{streams::Window::kUnbounded, streams::Window::kUnbounded};

/// Limits the window of a client, because items that the client does not read stay in the server's memory.
streams::Window bounded(streams::Window wanted) {
    constexpr std::size_t kMostItems = 65'536, kMostBytes = std::size_t{64} << 20;
    return {std::min(wanted.items, kMostItems), std::min(wanted.bytes, kMostBytes)};
}

/// Leaves out the transport `body`: events are text, so no tensors can follow them as bytes.
std::optional<json_rpc::Error> leave_out_bodies(tensor::ExportPolicy& policy) {
    std::erase(policy.accept, tensor::TransportKind::body);
    if (policy.require.empty()) return std::nullopt;
    std::erase(policy.require, tensor::TransportKind::body);
    if (!policy.require.empty()) return std::nullopt;
    return json_rpc::transport_not_possible({{"body", "events are text: call it over a WebSocket (GET /ws)"}});
}

}  // namespace

std::variant<std::shared_ptr<StreamCall>, json_rpc::Error> StreamOpener::make(const json_rpc::Request& request,
                                                                              const Function& function,
                                                                              const CallMeta& defaults,
                                                                              const Principal& principal,
                                                                              std::shared_ptr<MessageOut> out) const {
    if (!principal.may_call(request.method)) return json_rpc::not_authorised(reason_against(request.method));
    ReplyContext reply_context;
    if (auto error = reply_contexts.find(principal, defaults, request.meta, reply_context)) return std::move(*error);
    const bool events = out->socket() == nullptr;
    const streams::Window client_window = events ? kNoWindow : bounded(reply_context.meta.stream_window);
    if (events) {
        if (auto error = leave_out_bodies(reply_context.meta.policy)) return std::move(*error);
    }
    return std::make_shared<StreamCall>(
        StreamCall::Setup{request.id.value_or(nullptr), function->shared, principal, std::move(reply_context),
                          reply_contexts, values, transports, max_item_json, window, std::move(out)},
        client_window);
}

std::variant<runtime::StreamRun, json_rpc::Error> StreamOpener::open(const std::shared_ptr<StreamCall>& call,
                                                                     const json_rpc::Request& request,
                                                                     const Function& function,
                                                                     tensor::Incoming tensors) const {
    const ReplyContext& reply_context = call->reply_context();
    tensors.hold = values.holder(call->principal());
    tensor::TensorTransfer arguments(std::move(tensors));
    arguments.set_transports(reply_context.transports());
    MessageReferences references(values, call->principal());
    const runtime::CallOwner owner{call->principal().name, reply_context.state_session, {}, id_text(request.id)};
    auto opened = dispatcher.open_stream({request.method,
                                          request.params,
                                          owner,
                                          reply_context.meta.timeout,
                                          {},
                                          arguments,
                                          &references,
                                          reply_context.memory,
                                          call->lent(),
                                          false,
                                          function},
                                         call, [call] { call->cancelled(); });
    transports.add(arguments);
    return opened;
}

}  // namespace shared_tensor::server
