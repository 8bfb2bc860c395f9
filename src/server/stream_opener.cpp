#include "server/stream_opener.hpp"

#include <utility>

namespace shared_tensor::server {

std::variant<std::shared_ptr<StreamCall>, json_rpc::Error> StreamOpener::make(const json_rpc::Request& request,
                                                                              const CallMeta& defaults,
                                                                              const Principal& principal,
                                                                              std::shared_ptr<MessageOut> out) const {
    Recipient recipient;
    if (auto error = recipients.find(principal, defaults, request.meta, recipient)) return std::move(*error);
    const streams::Window client_window = recipient.meta.stream_window;
    return std::make_shared<StreamCall>(
        StreamCall::Setup{request.id.value_or(nullptr), dispatcher.registry().find(request.method), principal,
                          std::move(recipient), recipients, ways, window, std::move(out)},
        client_window);
}

std::variant<service::StreamRun, json_rpc::Error> StreamOpener::open(const std::shared_ptr<StreamCall>& call,
                                                                     const json_rpc::Request& request,
                                                                     tensor::Incoming tensors) const {
    const Recipient& recipient = call->recipient();
    tensor::TensorExchange arguments(std::move(tensors));
    arguments.set_media(recipient.media());
    MessageReferences references(values, call->principal());
    const service::CallOwner owner{call->principal().name, recipient.state_session, {}};
    auto opened = dispatcher.open_stream(
        {request.method, request.params, owner, recipient.meta.timeout, {}, arguments, &references}, call,
        [call] { call->cancelled(); });
    ways.add(arguments);
    return opened;
}

}  // namespace shared_tensor::server
