#include <array>
#include <charconv>
#include <chrono>
#include <new>
#include <utility>
#include <vector>

#include "base/log/log.hpp"
#include "net/message/body.hpp"
#include "net/message/fields.hpp"
#include "net/server/response_writer.hpp"
#include "net/server/server_context.hpp"
#include "net/web_socket/web_socket_handshake.hpp"

namespace shared_tensor::net {

namespace {

constexpr HeadRejection kNoThread{
    503,
    "no thread can be spared for this request: try again later; if it stays so, raise the "
    "server's limit of threads (ulimit -u, pids.max) or of memory"};
constexpr HeadRejection kFull{503, "too many connections: try again later; if it stays so, raise --max-connections"};
constexpr HeadRejection kTooMany{503,
                                 "this client has too many connections: close some, or raise --max-client-connections"};

HeadRejection explain(BodyRejection rejection) {
    switch (rejection) {
        case BodyRejection::malformed: return {400, "the chunked body is malformed"};
        case BodyRejection::too_large: return {413, "the body is larger than this server takes"};
        case BodyRejection::too_many_chunks: return {413, "the body comes in too many chunks"};
        case BodyRejection::not_allowed: return {503, "too many bytes of requests are in flight; try again later"};
        default: return {408, "the body did not arrive in time"};
    }
}

Response bare_500() {
    Response response;
    response.status = 500;
    response.close = true;
    return response;
}

/// Calls the handler. Its exceptions must not end the thread.
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

/// One request: its connection, its thread, and the state of its answer.
class RequestRun final : public ResponseStream {
public:
    RequestRun(ServerContext& context, ServingThread& thread, Connection& connection)
        : context_(context), thread_(thread), connection_(connection) {
        if (context_.handler.wants_served()) begun_at_ = std::chrono::steady_clock::now();
    }
    RequestRun(const RequestRun&) = delete;
    RequestRun& operator=(const RequestRun&) = delete;
    ~RequestRun() override {
        if (context_.handler.wants_served()) tell_served();
        if (gone_.stop_possible()) set_gone(std::stop_source(std::nostopstate));
        thread_.release();
    }

    After run(InputBuffer& input, RequestFrame frame);
    After reject(HeadRejection rejection, const RequestHead* head = nullptr);
    /// Names a request without a correct head.
    void name_request() { request_id_ = context_.handler.request_id(nullptr); }

    std::stop_token client_gone() override;
    bool may_take_long() override { return thread_.hold(); }
    void about_to_wait() override { thread_.keep_to_one(); }
    bool begin(const Response& head) override;
    bool write(std::span<const BodyPart> parts) override;
    bool can_answer_now() const override { return true; }
    void answer_now(const Response& response) override;

private:
    void look_at_peer();
    void name_request(RequestHead& head);
    void count_in(std::uint64_t bytes);
    void count_out(std::uint64_t bytes);
    void tell_served() const noexcept;
    void set_gone(const std::stop_source& source) {
        connection_.gone.with([&](std::stop_source& gone) { gone = source; });
    }
    bool count(const std::shared_ptr<Budget>& client);
    Handler::Verdict admit(const RequestFrame& frame);
    After serve_web_socket(InputBuffer& input, const RequestFrame& frame, const WebSocketPlan& plan);
    std::variant<std::shared_ptr<PooledBuffer>, After> receive_body(InputBuffer& input, const RequestFrame& frame,
                                                                    const BodyPlan& plan);
    After handle(RequestFrame& frame, std::shared_ptr<PooledBuffer> body, const BodyPlan& plan);
    After answer(const Response& response);
    After answer_unread(InputBuffer& input, const Framing& framing, const Response& response);
    After finish(const Response& response);
    bool write_whole(const Response& response, bool close, bool may_wait);
    bool note(WriteOutcome outcome);
    bool send(std::vector<iovec> places);
    bool draining() const { return context_.draining.load(std::memory_order_relaxed); }
    WriteLimits limits(bool may_wait);

    ServerContext& context_;
    ServingThread& thread_;
    Connection& connection_;
    bool keep_alive_ = false, http_1_0_ = false, head_only_ = false;  // as the request asks
    std::stop_token gone_{};
    const Headers* more_headers_ = nullptr;  // BodyPlan::response_headers, once the handler has the request
    bool begun_ = false, broken_ = false, answered_ = false;
    bool keeps_ = false;  // the connection, after an answer that was begun
    std::string request_id_;
    // For Handler::served():
    std::optional<RequestHead> head_;  // a copy, because the handler gets the head; only if the handler wants it
    std::shared_ptr<const Admission> admission_;
    int status_ = 0;
    std::uint64_t bytes_in_ = 0, bytes_out_ = 0;
    std::chrono::steady_clock::time_point begun_at_{};
};

void RequestRun::name_request(RequestHead& head) {
    request_id_ = context_.handler.request_id(&head);
    const auto given = head.headers.find(kRequestId);
    if (!given && !request_id_.empty()) head.headers.add(kRequestId, request_id_);
    if (given && !request_id_.empty() && *given != request_id_) head.headers.set(kRequestId, request_id_);
    if (context_.handler.wants_served()) head_ = head;
}

void RequestRun::count_in(std::uint64_t bytes) {
    bytes_in_ += bytes;
    Counters::add(context_.counters.bytes_in, bytes);
}

void RequestRun::count_out(std::uint64_t bytes) {
    bytes_out_ += bytes;
    Counters::add(context_.counters.bytes_out, bytes);
}

void RequestRun::tell_served() const noexcept {
    context_.handler.served({head_ ? &*head_ : nullptr, admission_.get(), request_id_, status_, bytes_in_, bytes_out_,
                             std::chrono::steady_clock::now() - begun_at_});
}

std::stop_token RequestRun::client_gone() {
    if (!gone_.stop_possible()) {
        const std::stop_source source;
        gone_ = source.get_token();
        set_gone(source);
        context_.connections.watch_peer(connection_);
    }
    return gone_;
}

bool RequestRun::begin(const Response& head) {
    using Body = ResponseForm::Body;
    begun_ = true;
    status_ = head.status;
    keeps_ = keep_alive_ && !http_1_0_ && !draining();
    const std::string text = render_response_head(head, {.close = !keeps_,
                                                         .body = http_1_0_ ? Body::to_the_end : Body::chunked,
                                                         .more_headers = more_headers_,
                                                         .request_id = request_id_});
    return send({place_of(text)});
}

bool RequestRun::write(std::span<const BodyPart> parts) {
    const std::uint64_t size = size_of(parts);
    if (size == 0) return !broken_;
    std::vector<iovec> places(1);
    for (const BodyPart& part : parts) {
        if (!part.bytes.empty()) places.push_back(place_of(part.bytes));
    }
    std::string start;
    if (!http_1_0_) {
        std::array<char, 20> digits{};
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), size, 16).ptr;
        start.append(digits.data(), end).append("\r\n");
        places.push_back(place_of("\r\n"));
    }
    places.front() = place_of(start);
    return send(std::move(places));
}

/// The end of an answer that was begun.
After RequestRun::finish(const Response& response) {
    if (response.status != 200) return After::close;  // the handler failed: the answer is cut off
    if (!http_1_0_) send({place_of("0\r\n\r\n")});
    return !broken_ && keeps_ ? After::keep : After::close;
}

bool RequestRun::send(std::vector<iovec> places) {
    if (broken_) return false;
    for (const iovec& place : places)
        count_out(place.iov_len);
    broken_ = !note(write_all(*connection_.stream, places, limits(true)));
    return !broken_;
}

WriteLimits RequestRun::limits(bool may_wait) {
    return {context_.options.write_timeout, context_.options.min_bytes_per_second,
            [this, may_wait] { return may_wait && thread_.hold_to_wait(); }};
}

bool RequestRun::note(WriteOutcome outcome) {
    if (outcome == WriteOutcome::timeout) connection_.stream->abandon_unsent();
    return outcome == WriteOutcome::done;
}

/// `may_wait`: waits for a client that reads slowly, if a thread can be spared.
bool RequestRun::write_whole(const Response& response, bool close, bool may_wait) {
    const ResponseForm form{.close = close,
                            .keep_http_1_0 = http_1_0_,
                            .head_only = head_only_,
                            .more_headers = more_headers_,
                            .request_id = request_id_};
    status_ = response.status;
    std::size_t bytes_out = 0;
    const WriteOutcome outcome = write_response(*connection_.stream, response, form, limits(may_wait), bytes_out);
    count_out(bytes_out);
    return note(outcome);
}

After RequestRun::answer(const Response& response) {
    const bool keep = keep_alive_ && !response.close && !draining();
    return write_whole(response, !keep, connection_.trusted) && keep ? After::keep : After::close;
}

void RequestRun::answer_now(const Response& response) {
    answered_ = true;
    if (write_whole(response, true, false)) {
        connection_.stream->finish_writing();
    } else {
        connection_.stream->shutdown();
    }
}

/// Answers a request that the handler rejected by its headers. Skips a body that is here already. If the body is still
/// to come, or the client is untrusted, the connection ends instead.
After RequestRun::answer_unread(InputBuffer& input, const Framing& framing, const Response& response) {
    const std::uint64_t unread = framing.length.value_or(0);
    if (connection_.trusted && !framing.chunked && unread <= input.size()) {
        input.consume(unread);
        return answer(response);
    }
    return write_whole(response, true, connection_.trusted) ? After::lingering_close : After::close;
}

After RequestRun::reject(HeadRejection rejection, const RequestHead* head) {
    context_.handler.rejected(rejection.status);
    const Response response = guarded("reject a request", bare_500(), [&] {
        return context_.handler.rejection(rejection.status, rejection.reason, head);
    });
    return write_whole(response, true, connection_.trusted) ? After::lingering_close : After::close;
}

Handler::Verdict RequestRun::admit(const RequestFrame& frame) {
    const bool has_body = frame.framing.chunked || frame.framing.length.value_or(0) > 0;
    const bool is_handshake = !http_1_0_ && !has_body && rejection_of_handshake(frame.head).empty();
    return guarded("admit a request", Handler::Verdict(bare_500()),
                   [&] { return context_.handler.admit(frame.head, is_handshake); });
}

/// Serves a WebSocket to its end. If user code keeps the socket, that keeps its descriptor open.
After RequestRun::serve_web_socket(InputBuffer& input, const RequestFrame& frame, const WebSocketPlan& plan) {
    const std::string switching =
        render_switching(*frame.head.headers.find("Sec-WebSocket-Key"), request_id_, plan.protocol);
    status_ = 101;
    admission_ = plan.admission;
    iovec line = place_of(switching);
    if (write_all(*connection_.stream, {&line, 1}, {context_.options.write_timeout, 0}) != WriteOutcome::done)
        return After::close;
    connection_.stream->set_linger(std::chrono::microseconds(0));
    const auto take = [&context = context_, client = plan.client_budget](std::size_t bytes) {
        return context.take_body_buffer(client.get(), bytes);
    };
    const std::shared_ptr<Stream> stream(connection_.shared_from_this(), connection_.stream.get());
    const auto socket = std::make_shared<WebSocket>(stream, WebSocket::Side::server, plan.limits, take, input.view());
    input.clear();
    const bool served = guarded("serve a WebSocket", false, [&] {
        plan.serve(socket);
        return true;
    });
    count_in(socket->bytes_in());
    count_out(socket->bytes_out());
    return served ? After::lingering_close : After::close;
}

/// The body, which counts against the budgets as long as it lives; or that the request was rejected, or its client is
/// gone.
std::variant<std::shared_ptr<PooledBuffer>, After> RequestRun::receive_body(InputBuffer& input,
                                                                            const RequestFrame& frame,
                                                                            const BodyPlan& plan) {
    const ServerOptions& options = context_.options;
    const std::string& method = frame.head.method;
    Framing framing = frame.framing;
    const bool needs_length = method == "POST" || method == "PUT" || method == "PATCH";
    if (needs_length && !framing.chunked && !framing.length)
        return reject({411, "the request needs a Content-Length"}, &frame.head);
    if (!framing.chunked && !framing.length) framing.length = 0;
    const auto now = MinimumRate::Clock::now();
    const MinimumRate rate = plan.binary ? MinimumRate(now, options.body_timeout, options.min_bytes_per_second)
                                         : MinimumRate::until(now + options.body_timeout);
    bool waits_for_100 = frame.expect_continue && input.empty();
    std::shared_ptr<const void> share;
    const auto allow = [&](std::size_t capacity) {
        auto larger = context_.hold_bytes(plan.client_budget.get(), capacity);
        if (larger == nullptr) return false;
        share = std::move(larger);
        if (!std::exchange(waits_for_100, false)) return true;
        iovec line = place_of("HTTP/1.1 100 Continue\r\n\r\n");
        return write_all(*connection_.stream, {&line, 1}, {options.write_timeout, 0}) == WriteOutcome::done;
    };
    try {
        auto result = read_body(*connection_.stream, input, framing, rate, {plan.max_bytes, options.max_chunks, allow},
                                context_.buffers);
        if (auto* body = std::get_if<std::shared_ptr<PooledBuffer>>(&result))
            return with_share(std::move(*body), std::move(share));
        const auto rejection = std::get<BodyRejection>(result);
        return rejection == BodyRejection::cut ? After::close : reject(explain(rejection), &frame.head);
    } catch (const std::bad_alloc&) {
        return reject({503, "there is no memory for the body; try again later"}, &frame.head);
    }
}

/// Counts the connection for the client whose request was admitted. False if that client has too many connections.
bool RequestRun::count(const std::shared_ptr<Budget>& client) {
    if (client != nullptr && client != connection_.principal) {
        auto place = client->take(1);
        if (!place) return false;
        connection_.principal = client;
        connection_.place = std::move(*place);
    }
    if (!connection_.trusted) context_.connections.trust(connection_);
    return true;
}

void RequestRun::look_at_peer() {
    if (std::exchange(connection_.peer.uid_error, 0) != 0) {  // the kernel could not be asked at accept()
        const PeerUsers::User user = context_.users.of(connection_.stream->fd());
        connection_.peer.uid = user.uid;
        connection_.peer.uid_error = user.error;
    }
    if (std::exchange(connection_.certificate_pending, false))
        connection_.peer.certificate = connection_.stream->certificate();
}

After RequestRun::handle(RequestFrame& frame, std::shared_ptr<PooledBuffer> body, const BodyPlan& plan) {
    count_in(body->size());
    more_headers_ = &plan.response_headers;
    const Response response = guarded("handle a request", bare_500(), [&] {
        return context_.handler.handle({std::move(frame.head), std::move(body), plan.admission}, *this);
    });
    if (answered_) return After::lingering_close;
    if (begun_) return finish(response);
    return answer(response);
}

After RequestRun::run(InputBuffer& input, RequestFrame frame) {
    Counters::add(context_.counters.requests, 1);
    look_at_peer();
    frame.head.peer = connection_.peer;
    name_request(frame.head);
    http_1_0_ = frame.http_1_0;
    if (connection_.rejected && !context_.handler.is_about_health(frame.head)) return reject(kFull, &frame.head);
    keep_alive_ = frame.keep_alive && !connection_.rejected;
    head_only_ = frame.head.method == "HEAD";

    const Handler::Verdict verdict = admit(frame);
    if (const auto* plan = std::get_if<WebSocketPlan>(&verdict)) {
        if (!count(plan->client_connections)) return reject(kTooMany, &frame.head);
        if (!thread_.hold_to_wait()) return reject(kNoThread, &frame.head);
        return serve_web_socket(input, frame, *plan);
    }
    if (const auto* rejection = std::get_if<Response>(&verdict)) return answer_unread(input, frame.framing, *rejection);
    const auto& plan = std::get<BodyPlan>(verdict);
    admission_ = plan.admission;
    if (!count(plan.client_connections)) return reject(kTooMany, &frame.head);
    const bool body_is_here = !frame.framing.chunked && frame.framing.length.value_or(0) <= input.size();
    if ((plan.takes_long || !body_is_here) && !thread_.hold_to_wait()) return reject(kNoThread, &frame.head);
    auto body = receive_body(input, frame, plan);
    if (const auto* after = std::get_if<After>(&body)) return *after;
    return handle(frame, std::move(std::get<std::shared_ptr<PooledBuffer>>(body)), plan);
}

}  // namespace

After run_request(ServerContext& context, ServingThread& thread, Connection& connection, InputBuffer& input,
                  RequestFrame frame) {
    return RequestRun(context, thread, connection).run(input, std::move(frame));
}

After reject_request(ServerContext& context, ServingThread& thread, Connection& connection, HeadRejection rejection) {
    RequestRun request(context, thread, connection);
    request.name_request();
    return request.reject(rejection);
}

}  // namespace shared_tensor::net
