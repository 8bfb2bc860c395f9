#include "http/request_runner.hpp"

#include <array>
#include <charconv>
#include <new>
#include <utility>
#include <vector>

#include "http/peer.hpp"
#include "http/web_socket_handshake.hpp"
#include "util/clock.hpp"
#include "util/log.hpp"

namespace shared_tensor::http {

namespace {

class ConnectionExchange final : public Exchange {
public:
    ConnectionExchange(ServerContext& context, Connection& connection, ThreadHold& hold, bool keep, bool http_1_0)
        : context_(context), connection_(connection), hold_(hold), keep_(keep && !http_1_0), chunked_(!http_1_0) {}
    ConnectionExchange(const ConnectionExchange&) = delete;
    ConnectionExchange& operator=(const ConnectionExchange&) = delete;
    ~ConnectionExchange() override {
        if (watching_) connection_.gone_watch.unwatch();
    }
    void on_client_gone(std::function<void()> gone) override {
        watching_ = true;
        connection_.gone_watch.watch(std::move(gone));
        context_.watch_peer(connection_);
    }
    bool may_take_long() override { return hold_.take(); }

    bool begin(const Response& head) override {
        using Body = ResponseForm::Body;
        begun_ = true;
        std::string text =
            render_response_head(head, {.close = !keep_, .body = chunked_ ? Body::chunked : Body::to_the_end});
        return send({{text.data(), text.size()}});
    }
    bool write(std::span<const BodyPart> parts) override {
        std::size_t size = 0;
        std::vector<iovec> places(1);
        for (const BodyPart& part : parts) {
            size += part.bytes.size();
            // sendmsg only reads it
            if (!part.bytes.empty()) places.push_back({const_cast<std::byte*>(part.bytes.data()), part.bytes.size()});
        }
        if (size == 0) return !broken_;
        std::string start;
        if (chunked_) {
            std::array<char, 20> digits{};
            const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), size, 16).ptr;
            start.append(digits.data(), end).append("\r\n");
            places.push_back({const_cast<char*>("\r\n"), 2});
        }
        places.front() = {start.data(), start.size()};
        return send(std::move(places));
    }

    bool begun() const { return begun_; }
    /// The end of the body.
    After finish() {
        static constexpr std::string_view kLast = "0\r\n\r\n";
        if (chunked_) send({{const_cast<char*>(kLast.data()), kLast.size()}});
        return !broken_ && keep_ ? After::keep : After::close;
    }

private:
    bool send(std::vector<iovec> places) {
        if (broken_) return false;
        const auto& options = context_.options;
        for (const iovec& place : places)
            Counters::add(context_.counters.bytes_out, place.iov_len);
        const WriteOutcome outcome =
            write_all(*connection_.wire, places, options.write_timeout, options.min_bytes_per_second, SteadyTime::max(),
                      [this] { return hold_.take(); });
        if (outcome == WriteOutcome::timeout) connection_.wire->abandon_unsent();
        broken_ = outcome != WriteOutcome::done;
        return !broken_;
    }

    ServerContext& context_;
    Connection& connection_;
    ThreadHold& hold_;
    const bool keep_, chunked_;
    bool watching_ = false, begun_ = false, broken_ = false;
};

constexpr HeadFault kNoThread{503,
                              "no thread can be spared for this request: try again later; if it stays so, raise the "
                              "server's limit of threads (ulimit -u, pids.max) or of memory"};
constexpr HeadFault kFull{503, "too many connections: try again later; if it stays so, raise --max-connections"};
constexpr HeadFault kTooMany{503,
                             "this client has too many connections: close some, or raise --max-client-connections"};

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

std::optional<WebSocketPlan> RequestRunner::upgrade(const RequestHead& head) {
    if (!fault_of_handshake(head).empty()) return std::nullopt;
    using Plan = std::optional<WebSocketPlan>;
    return guarded("upgrade a connection", Plan(), [&] { return context_.handler.upgrade(head); });
}

/// The rest of the connection's life. What user code still holds of the socket keeps its descriptor, not its use.
After RequestRunner::serve(Connection& connection, InputBuffer& input, std::string_view key,
                           const WebSocketPlan& plan) {
    struct Upgraded {
        std::shared_ptr<Connection> connection;
        WebSocket socket;
    };
    std::string switching = render_switching(key);
    iovec line{switching.data(), switching.size()};
    if (write_all(*connection.wire, {&line, 1}, context_.options.write_timeout, 0) != WriteOutcome::done)
        return After::close;
    connection.wire->set_linger(std::chrono::microseconds(0));
    const auto take = [&context = context_, client = plan.client_budget](std::size_t bytes) {
        return take_body_buffer(context, client.get(), bytes);
    };
    const std::shared_ptr<Upgraded> upgraded(
        new Upgraded{connection.shared_from_this(),
                     WebSocket(*connection.wire, WebSocket::Side::server, plan.limits, take, input.view())});
    input.clear();
    const bool served = guarded("serve a WebSocket", false, [&] {
        plan.serve(std::shared_ptr<WebSocket>(upgraded, &upgraded->socket));
        return true;
    });
    Counters::add(context_.counters.bytes_in, upgraded->socket.bytes_in());
    Counters::add(context_.counters.bytes_out, upgraded->socket.bytes_out());
    return served ? After::goodbye : After::close;
}

/// A thread waits for a client that reads slowly only when it can be spared, and never for one that was not admitted.
bool RequestRunner::write(Connection& connection, const Response& response, ResponseForm form, ThreadHold& hold) {
    std::size_t bytes_out = 0;
    const WriteLimits limits{context_.options.write_timeout, context_.options.min_bytes_per_second,
                             [&] { return connection.trusted && hold.take(); }};
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

After RequestRunner::answer(Connection& connection, const Response& response, const RequestFrame& frame, bool head_only,
                            ThreadHold& hold) {
    const bool keep = may_keep(response, frame);
    const ResponseForm form{.close = !keep, .keep_http_1_0 = frame.http_1_0, .head_only = head_only};
    return write(connection, response, form, hold) && keep ? After::keep : After::close;
}

/// The handler refused on the headers alone. A body that is here already is skipped; one that is still to come would
/// have to be waited for, so the connection ends instead. The connection of a client that was never admitted ends in
/// any case.
After RequestRunner::answer_refusal(Connection& connection, InputBuffer& input, const Response& response,
                                    const RequestFrame& frame, ThreadHold& hold) {
    const bool head_only = frame.head.method == "HEAD";
    const std::uint64_t unread = frame.framing.length.value_or(0);
    if (connection.trusted && !frame.framing.chunked && unread <= input.size()) {
        input.consume(unread);
        return answer(connection, response, frame, head_only, hold);
    }
    return write(connection, response, {.close = true, .head_only = head_only}, hold) ? After::goodbye : After::close;
}

/// The connection counts as one of the client's whose request was admitted. False: that client has too many.
bool RequestRunner::count(Connection& connection, const std::shared_ptr<Budget>& client) {
    if (client != nullptr && client != connection.principal) {
        auto place = client->take(1);
        if (!place) return false;
        connection.principal = client;
        connection.place = std::move(*place);
    }
    if (!connection.trusted) context_.trust(connection);
    return true;
}

void RequestRunner::look_at_peer(Connection& connection) const {
    if (std::exchange(connection.peer.uid_error, 0) != 0) {  // when it was accepted the kernel could not be asked
        const PeerUsers::User user = context_.users.of(connection.wire->fd());
        connection.peer.uid = user.uid;
        connection.peer.uid_error = user.error;
    }
    if (std::exchange(connection.certificate_pending, false))
        connection.peer.certificate = connection.wire->certificate();
}

After RequestRunner::run(Connection& connection, InputBuffer& input, RequestFrame frame) {
    Counters::add(context_.counters.requests, 1);
    look_at_peer(connection);
    frame.head.peer = connection.peer;
    ThreadHold hold(context_);
    if (connection.refused) {
        if (!context_.handler.is_about_health(frame.head)) return refuse(connection, kFull, hold, false, &frame.head);
        frame.keep_alive = false;
    }
    const bool head_only = frame.head.method == "HEAD";

    const bool has_body = frame.framing.chunked || frame.framing.length.value_or(0) > 0;
    const auto plan = frame.http_1_0 || has_body ? std::nullopt : upgrade(frame.head);
    if (plan) {
        if (!count(connection, plan->client_connections))
            return refuse(connection, kTooMany, hold, head_only, &frame.head);
        if (!hold.take()) return refuse(connection, kNoThread, hold, head_only, &frame.head);
        return serve(connection, input, *frame.head.headers.find("Sec-WebSocket-Key"), *plan);
    }
    const auto verdict = admit(frame.head);
    if (const auto* refusal = std::get_if<Response>(&verdict))
        return answer_refusal(connection, input, *refusal, frame, hold);

    const auto& admitted = std::get<BodyPlan>(verdict);
    if (!count(connection, admitted.client_connections))
        return refuse(connection, kTooMany, hold, head_only, &frame.head);
    const bool body_is_here = !frame.framing.chunked && frame.framing.length.value_or(0) <= input.size();
    if ((admitted.takes_long || !body_is_here) && !hold.take())
        return refuse(connection, kNoThread, hold, head_only, &frame.head);
    auto body = receive_body(connection, input, frame, admitted);
    if (std::holds_alternative<PeerGone>(body)) return After::close;
    if (const auto* fault = std::get_if<HeadFault>(&body))
        return refuse(connection, *fault, hold, head_only, &frame.head);

    auto& bytes = std::get<std::shared_ptr<PooledBuffer>>(body);
    Counters::add(context_.counters.bytes_in, bytes->size());
    const bool keep = frame.keep_alive && !context_.draining.load(std::memory_order_relaxed);
    ConnectionExchange exchange(context_, connection, hold, keep, frame.http_1_0);
    const Response response = guarded("handle a request", bare_500(), [&] {
        return context_.handler.handle({std::move(frame.head), std::move(bytes)}, exchange);
    });
    if (exchange.begun()) return response.status == 200 ? exchange.finish() : After::close;  // cut off: it failed
    return answer(connection, response, frame, head_only, hold);
}

After RequestRunner::refuse(Connection& connection, HeadFault fault) {
    ThreadHold hold(context_);
    return refuse(connection, fault, hold, false, nullptr);
}

After RequestRunner::refuse(Connection& connection, HeadFault fault, ThreadHold& hold, bool head_only,
                            const RequestHead* head) {
    const Response response = guarded("word a fault", bare_500(), [&] {
        Handler& handler = context_.handler;
        return head != nullptr ? handler.fault_behind(*head, fault.status, fault.reason)
                               : handler.fault(fault.status, fault.reason);
    });
    return write(connection, response, {.close = true, .head_only = head_only}, hold) ? After::goodbye : After::close;
}

}  // namespace shared_tensor::http
