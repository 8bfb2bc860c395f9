#include "http/request_runner.hpp"

#include <new>
#include <utility>

#include "http/peer.hpp"
#include "util/log.hpp"

namespace shared_tensor::http {

namespace {

class ConnectionExchange final : public Exchange {
public:
    ConnectionExchange(ServerContext& context, Connection& connection) : context_(context), connection_(connection) {}
    ConnectionExchange(const ConnectionExchange&) = delete;
    ConnectionExchange& operator=(const ConnectionExchange&) = delete;
    ~ConnectionExchange() override {
        if (watching_) connection_.unwatch();
    }
    void on_client_gone(std::function<void()> gone) override {
        watching_ = true;
        connection_.watch(std::move(gone));
        context_.watch_peer(connection_);
    }

private:
    ServerContext& context_;
    Connection& connection_;
    bool watching_ = false;
};

Response bare_500() {
    Response response;
    response.status = 500;
    response.close = true;
    return response;
}

/// Runs what the room above wrote; a failure of it must not end our thread.
template <class Task, class Result>
Result guarded(std::string_view what, Result otherwise, Task task) {
    try {
        return task();
    } catch (const std::exception& error) {
        log::error("the handler failed to ", what, ": ", error.what());
    } catch (...) {
        log::error("the handler failed to ", what);
    }
    return otherwise;
}

bool needs_a_length(const RequestFrame& frame) {
    const std::string& method = frame.head.method;
    if (frame.framing.chunked || frame.framing.length) return false;
    return method == "POST" || method == "PUT" || method == "PATCH";
}

}  // namespace

std::variant<BodyPlan, Response> RequestRunner::admit(const RequestHead& head) {
    using Verdict = std::variant<BodyPlan, Response>;
    return guarded("admit a request", Verdict(bare_500()), [&] { return context_.handler.admit(head); });
}

Response RequestRunner::handle(Connection& connection, Request request) {
    ConnectionExchange exchange(context_, connection);
    return guarded("handle a request", bare_500(),
                   [&] { return context_.handler.handle(std::move(request), exchange); });
}

bool RequestRunner::write(Connection& connection, const Response& response, ResponseForm form) {
    std::size_t bytes_out = 0;
    const WriteLimits limits{context_.options.write_timeout, context_.options.min_bytes_per_second};
    const WriteOutcome outcome = write_response(*connection.wire, response, form, limits, bytes_out);
    Counters::add(context_.counters.bytes_out, bytes_out);
    if (outcome == WriteOutcome::timeout) connection.wire->abandon_unsent();
    return outcome == WriteOutcome::done;
}

/// "100 Continue".
bool RequestRunner::invite_body(Wire& wire) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    iovec line{const_cast<char*>(kContinue.data()), kContinue.size()};
    return write_all(wire, {&line, 1}, context_.options.write_timeout, 0) == WriteOutcome::done;
}

BodyResult RequestRunner::receive_body(Connection& connection, InputBuffer& input, const RequestFrame& frame,
                                       const BodyPlan& plan) {
    if (needs_a_length(frame)) return HeadFault{411, "the request needs a Content-Length"};
    const bool hopeless = frame.framing.length.value_or(0) > plan.max_bytes;  // the client is not invited to send it
    const bool waits = frame.expect_continue && input.empty() && !hopeless;
    if (waits && !invite_body(*connection.wire)) return PeerGone{};
    try {
        return read_body(context_, *connection.wire, input, frame.framing, plan);
    } catch (const std::bad_alloc&) {
        return HeadFault{503, "there is no memory for the body; try again later"};
    }
}

bool RequestRunner::may_keep(const Response& response, const RequestFrame& frame) const {
    return frame.keep_alive && !response.close && !context_.draining.load(std::memory_order_relaxed);
}

After RequestRunner::answer(Connection& connection, const Response& response, const RequestFrame& frame,
                            bool head_only) {
    const bool keep = may_keep(response, frame);
    const ResponseForm form{.close = !keep, .keep_http_1_0 = frame.http_1_0, .head_only = head_only};
    return write(connection, response, form) && keep ? After::keep : After::close;
}

/// The handler refused on the headers alone. A body that is here already is skipped; one that is still to come would
/// have to be waited for, so the connection ends instead.
After RequestRunner::answer_refusal(Connection& connection, InputBuffer& input, const Response& response,
                                    const RequestFrame& frame) {
    const bool head_only = frame.head.method == "HEAD";
    const std::uint64_t unread = frame.framing.length.value_or(0);
    if (!frame.framing.chunked && unread <= input.size()) {
        input.consume(unread);
        return answer(connection, response, frame, head_only);
    }
    return write(connection, response, {.close = true, .head_only = head_only}) ? After::goodbye : After::close;
}

After RequestRunner::run(Connection& connection, InputBuffer& input, RequestFrame frame) {
    Counters::add(context_.counters.requests, 1);
    if (std::exchange(connection.uid_pending, false)) {
        connection.peer.uid = loopback_peer_uid(connection.wire->fd());
    }
    frame.head.peer = connection.peer;
    const bool head_only = frame.head.method == "HEAD";

    const auto verdict = admit(frame.head);
    if (const auto* refusal = std::get_if<Response>(&verdict))
        return answer_refusal(connection, input, *refusal, frame);

    auto body = receive_body(connection, input, frame, std::get<BodyPlan>(verdict));
    if (std::holds_alternative<PeerGone>(body)) return After::close;
    if (const auto* fault = std::get_if<HeadFault>(&body)) return refuse(connection, *fault, head_only);

    auto& bytes = std::get<std::shared_ptr<PooledBuffer>>(body);
    Counters::add(context_.counters.bytes_in, bytes->size());
    const Response response = handle(connection, {std::move(frame.head), std::move(bytes)});
    return answer(connection, response, frame, head_only);
}

After RequestRunner::refuse(Connection& connection, HeadFault fault, bool head_only) {
    const Response response =
        guarded("word a fault", bare_500(), [&] { return context_.handler.fault(fault.status, fault.reason); });
    return write(connection, response, {.close = true, .head_only = head_only}) ? After::goodbye : After::close;
}

}  // namespace shared_tensor::http
