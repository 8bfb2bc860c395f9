#include <mutex>
#include <utility>

#include "net/message/text.hpp"
#include "protocol/json_rpc/message.hpp"
#include "server/streams/stream_call.hpp"

namespace shared_tensor::server {

using json_rpc::Error;

namespace {

constexpr std::string_view kContentType = "text/event-stream";

net::BodyPart view_of(std::string_view text) { return {std::as_bytes(std::span(text)), nullptr}; }

bool only_writes(const FunctionRecord& function) {
    for (const ParameterInfo& parameter : function.parameters()) {
        if (parameter.flow == Flow::reader) return false;
    }
    return true;
}

class EventOut final : public MessageOut {
public:
    explicit EventOut(net::ResponseStream& response_stream) : response_stream_(&response_stream) {}

    /// No tensors follow the JSON: StreamCall leaves out the transport `body`.
    bool send(ReplyText json, const tensor::OutgoingBody&) override { return send_event(json.take_parts()); }
    bool say(std::string json) override { return send_event({view_of(json)}); }

    /// After the answer, code that the function left running can no longer use the response stream.
    bool answer(ReplyText json, const tensor::TensorTransfer&) override {
        const bool sent = send_event(json.take_parts());
        const std::lock_guard turn(turn_);
        response_stream_ = nullptr;
        return sent;
    }

private:
    /// JSON text has no line breaks, so it is one line of an event. Several threads of a function may write: each event
    /// is written under the lock.
    bool send_event(std::vector<net::BodyPart> json) {
        json.insert(json.begin(), view_of("data: "));
        json.push_back(view_of("\n\n"));
        const std::lock_guard turn(turn_);
        return response_stream_ != nullptr && response_stream_->write(json);
    }

    std::mutex turn_;
    net::ResponseStream* response_stream_;
};

}  // namespace

bool accepts_events(const net::Headers& headers) {
    for (const auto& [name, value] : headers) {
        if (!net::same_token(name, "Accept")) continue;
        for (std::string_view list = value; !list.empty();) {
            const std::size_t comma = std::min(list.find(','), list.size());
            const std::string_view one = list.substr(0, comma);
            if (net::same_token(net::trim(one.substr(0, one.find(';'))), kContentType)) return true;
            list.remove_prefix(std::min(comma + 1, list.size()));
        }
    }
    return false;
}

std::optional<net::Response> answer_by_events(Services& all, const json_rpc::Request& request,
                                              const StreamCall::Function& function, tensor::Incoming tensors,
                                              const CallDefaults& defaults, const Principal& principal,
                                              net::ResponseStream& response_stream) {
    const json_rpc::Json id = request.id.value_or(nullptr);
    if (!only_writes(*function->shared)) {
        return error_reply(
            id, json_rpc::invalid_request("this function reads a stream: call it over a WebSocket (GET /ws)"));
    }
    if (id.is_null()) return error_reply(id, json_rpc::invalid_request("a call that streams needs an id"));
    auto made =
        StreamCall::make(all, request, function, defaults, principal, std::make_shared<EventOut>(response_stream));
    if (const auto* error = std::get_if<Error>(&made)) return error_reply(id, *error);
    const auto& call = std::get<std::shared_ptr<StreamCall>>(made);
    if (!response_stream.may_take_long()) return error_reply(id, no_thread());
    auto opened = call->open(request, std::move(tensors));
    if (const auto* error = std::get_if<Error>(&opened)) return error_reply(id, *error);
    auto& run = std::get<runtime::StreamRun>(opened);

    net::Response head;
    head.content_type = kContentType;
    head.headers.add("Cache-Control", "no-store");
    head.headers.add("X-Accel-Buffering", "no");  // nginx passes each piece on
    const auto execution = run.execution();
    response_stream.on_client_gone([execution] { execution->cancel(); });
    if (!response_stream.begin(head)) execution->cancel();
    run.run();
    call->finish(*execution->outcome());
    return std::nullopt;
}

}  // namespace shared_tensor::server
