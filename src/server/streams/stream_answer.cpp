#include <mutex>
#include <utility>

#include "net/message/fields.hpp"
#include "protocol/json_rpc/message.hpp"
#include "server/streams/stream_call.hpp"

namespace shared_tensor::server {

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

bool accepts_events(const net::Headers& headers) { return !net::first_accepted(headers, {kContentType}).empty(); }

void answer_by_events(Services& all, const json_rpc::Request& request, const StreamCall::Function& function,
                      tensor::Incoming tensors, const CallDefaults& defaults, const Principal& principal,
                      net::ResponseStream& response_stream) {
    if (!only_writes(*function->shared))
        throw Rejected(json_rpc::invalid_request("this function reads a stream: call it over a WebSocket (GET /ws)"));
    if (request.id.value_or(nullptr).is_null())
        throw Rejected(json_rpc::invalid_request("a call that streams needs an id"));
    const auto call =
        StreamCall::make(all, request, function, defaults, principal, std::make_shared<EventOut>(response_stream));
    if (!response_stream.may_take_long()) throw Rejected(no_thread());
    response_stream.about_to_wait();
    auto run = call->open(request, std::move(tensors));

    net::Response head;
    head.content_type = kContentType;
    head.headers.add("Cache-Control", "no-store");
    head.headers.add("X-Accel-Buffering", "no");  // nginx passes each piece on
    const auto execution = run.execution();
    const std::stop_callback gone(response_stream.client_gone(), [&] { cancel_run(*execution); });
    if (!response_stream.begin(head)) execution->cancel();
    run.run();
    call->finish(*execution->outcome());
}

}  // namespace shared_tensor::server
