#include "http/request_runner.hpp"

#include <httplib.h>

#include <cstring>
#include <optional>

#include "http/body_reader.hpp"
#include "http/peer.hpp"
#include "http/response_writer.hpp"
#include "util/log.hpp"

namespace shared_tensor::http {

namespace {

/// What httplib reads a request from: the head that we have read and checked already, nothing else. What it writes is
/// dropped, since the answer is written by us, scattered and in one system call.
class HeadStream final : public httplib::Stream {
public:
    HeadStream(Wire& wire, InputBuffer& input, std::size_t head_bytes)
        : wire_(wire), input_(input), left_(head_bytes) {}

    /// What httplib left of the head: nothing, or it understood another head than we did.
    std::size_t left() const { return left_; }

    ssize_t read(char* to, size_t size) override {
        const std::size_t got = std::min(size, left_);
        if (got == 0) return -1;
        std::memcpy(to, input_.view().data(), got);
        consume_buffered(got);
        return static_cast<ssize_t>(got);
    }
    ssize_t write(const char*, size_t size) override { return static_cast<ssize_t>(size); }

    // Line readers of newer versions scan these bytes in one pass; older ones know neither, so nothing is overridden.
    const char* buffered_data(size_t& size) const {
        size = left_;
        return size > 0 ? input_.view().data() : nullptr;
    }
    void consume_buffered(size_t size) {
        input_.consume(size);
        left_ -= size;
    }

    bool is_readable() const override { return left_ > 0; }
    bool wait_readable() const override { return true; }
    bool wait_writable() const override { return true; }
    bool is_peer_alive() const override { return true; }
    void get_remote_ip_and_port(std::string&, int&) const override {}
    void get_local_ip_and_port(std::string&, int&) const override {}
    socket_t socket() const override { return wire_.fd(); }
    time_t duration() const override { return 0; }

private:
    Wire& wire_;
    InputBuffer& input_;
    std::size_t left_;
};

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

}  // namespace

class RequestRunner::Impl final : public httplib::Server {
public:
    explicit Impl(ServerContext& context) : context_(context) {
        set_pre_routing_handler([this](const httplib::Request&, httplib::Response& response) {
            answer();
            response.status = 200;  // httplib's own answer goes nowhere
            return HandlerResponse::Handled;
        });
    }

    After run(Connection& connection, InputBuffer& input, RequestFrame frame, std::size_t head_bytes);
    After refuse(Connection& connection, HeadFault fault);

private:
    /// One request on its way.
    struct Current {
        Connection& connection;
        InputBuffer& input;
        HeadStream& stream;
        RequestFrame& frame;
        std::size_t head_bytes;
        httplib::Request* seen = nullptr;  ///< httplib's view of it
        std::optional<After> after;        ///< set once it is answered
    };

    void answer();
    void answer_refusal(Response response);
    After answer_fault(Connection& connection, HeadFault fault, bool head_only);
    std::variant<BodyPlan, Response> admit(const RequestHead& head);
    BodyResult receive_body(const BodyPlan& plan);
    bool invite_body(Wire& wire);
    Response handle(std::shared_ptr<PooledBuffer> body);
    WriteOutcome write(Connection& connection, const Response& response, ResponseForm form);

    ServerContext& context_;
    Current* current_ = nullptr;
};

WriteOutcome RequestRunner::Impl::write(Connection& connection, const Response& response, ResponseForm form) {
    std::size_t bytes_out = 0;
    const WriteOutcome outcome =
        http::write_response(*connection.wire, response, form,
                             {context_.options.write_timeout, context_.options.min_bytes_per_second}, bytes_out);
    Counters::add(context_.counters.bytes_out, bytes_out);
    return outcome;
}

After RequestRunner::Impl::answer_fault(Connection& connection, HeadFault fault, bool head_only) {
    Response response = bare_500();
    try {
        response = context_.handler.fault(fault.status, fault.reason);
    } catch (const std::exception& error) {
        log::error("the handler failed to word a fault: ", error.what());
    }
    const bool written = write(connection, response, {.close = true, .head_only = head_only}) == WriteOutcome::done;
    return written ? After::goodbye : After::close;
}

std::variant<BodyPlan, Response> RequestRunner::Impl::admit(const RequestHead& head) {
    try {
        return context_.handler.admit(head);
    } catch (const std::exception& error) {
        log::error("the handler failed to admit a request: ", error.what());
    } catch (...) {
        log::error("the handler failed to admit a request");
    }
    return bare_500();
}

Response RequestRunner::Impl::handle(std::shared_ptr<PooledBuffer> body) {
    ConnectionExchange exchange(context_, current_->connection);
    try {
        return context_.handler.handle(Request{std::move(current_->frame.head), std::move(body)}, exchange);
    } catch (const std::exception& error) {
        log::error("the handler failed: ", error.what());
    } catch (...) {
        log::error("the handler failed");
    }
    return bare_500();
}

/// "100 Continue", when the client waits for it.
bool RequestRunner::Impl::invite_body(Wire& wire) {
    if (!current_->frame.expect_continue || !current_->input.empty()) return true;
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    iovec line{const_cast<char*>(kContinue.data()), kContinue.size()};
    return write_all(wire, {&line, 1}, context_.options.write_timeout, 0) == WriteOutcome::done;
}

BodyResult RequestRunner::Impl::receive_body(const BodyPlan& plan) {
    const Framing& framing = current_->frame.framing;
    Wire& wire = *current_->connection.wire;
    const bool hopeless = framing.length.value_or(0) > plan.max_bytes;  // the client is not invited to send it
    if (!hopeless && !invite_body(wire)) return PeerGone{};
    try {
        return read_body(context_, wire, current_->input, framing, plan);
    } catch (const std::bad_alloc&) {
        return HeadFault{503, "no memory for the body; try again later"};
    }
}

/// The handler refused on the headers alone. A body that is here already is skipped; one that is still to come would
/// have to be waited for, so the connection ends instead.
void RequestRunner::Impl::answer_refusal(Response response) {
    auto& [connection, input, stream, frame, head_bytes, seen, after] = *current_;
    const std::uint64_t unread = frame.framing.length.value_or(0);
    const bool body_is_here = !frame.framing.chunked && !frame.expect_continue && unread <= input.size();
    if (body_is_here) input.consume(unread);
    const bool keep =
        body_is_here && frame.keep_alive && !response.close && !context_.draining.load(std::memory_order_relaxed);
    const ResponseForm form{.close = !keep, .keep_http_1_0 = frame.http_1_0, .head_only = frame.head.method == "HEAD"};
    if (write(connection, response, form) != WriteOutcome::done) {
        after = After::close;
    } else {
        after = keep ? After::keep : After::goodbye;
    }
}

void RequestRunner::Impl::answer() {
    auto& [connection, input, stream, frame, head_bytes, seen, after] = *current_;
    after = After::close;
    if (seen != nullptr) seen->body_consumed_ = true;  // httplib must not look for a body of its own
    const bool head_only = frame.head.method == "HEAD";
    if (stream.left() != 0) {  // two readers disagree about the head: nothing after it can be trusted
        after = answer_fault(connection, {400, "the head is ambiguous"}, head_only);
        return;
    }
    auto verdict = admit(frame.head);
    if (auto* refusal = std::get_if<Response>(&verdict)) return answer_refusal(std::move(*refusal));

    auto body = receive_body(std::get<BodyPlan>(verdict));
    if (std::holds_alternative<PeerGone>(body)) return;
    if (const auto* fault = std::get_if<HeadFault>(&body)) {
        after = answer_fault(connection, *fault, head_only);
        return;
    }
    auto& bytes = std::get<std::shared_ptr<PooledBuffer>>(body);
    Counters::add(context_.counters.bytes_in, head_bytes + bytes->size());
    const Response response = handle(std::move(bytes));
    const bool keep = frame.keep_alive && !response.close && !context_.draining.load(std::memory_order_relaxed);
    const ResponseForm form{.close = !keep, .keep_http_1_0 = frame.http_1_0, .head_only = head_only};
    const bool written = write(connection, response, form) == WriteOutcome::done;
    after = written && keep ? After::keep : After::close;
}

After RequestRunner::Impl::run(Connection& connection, InputBuffer& input, RequestFrame frame, std::size_t head_bytes) {
    HeadStream stream(*connection.wire, input, head_bytes);
    Current current{connection, input, stream, frame, head_bytes, nullptr, std::nullopt};
    current_ = &current;
    if (connection.uid_pending) {
        connection.uid_pending = false;
        connection.peer.uid = loopback_peer_uid(connection.wire->fd());
    }
    frame.head.peer = connection.peer;
    Counters::add(context_.counters.requests, 1);
    bool closed = false;
    try {
        process_request(stream, connection.peer.ip, connection.peer.port, "", 0, false, closed,
                        [&](httplib::Request& request) {
                            current.seen = &request;
                            request.ranges.clear();  // ranges are the handler's business
                        });
    } catch (const std::exception& error) {
        log::error("a request failed: ", error.what());
        current.after = After::close;
    }
    current_ = nullptr;
    // httplib refused what our own reading let pass (a Range or Accept field that it cannot parse)
    if (!current.after)
        return answer_fault(connection, {400, "a header field is malformed"}, frame.head.method == "HEAD");
    return *current.after;
}

After RequestRunner::Impl::refuse(Connection& connection, HeadFault fault) {
    Counters::add(context_.counters.requests, 1);
    return answer_fault(connection, fault, false);
}

RequestRunner::RequestRunner(ServerContext& context) : impl_(std::make_unique<Impl>(context)) {}
RequestRunner::~RequestRunner() = default;

After RequestRunner::run(Connection& connection, InputBuffer& input, RequestFrame frame, std::size_t head_bytes) {
    return impl_->run(connection, input, std::move(frame), head_bytes);
}
After RequestRunner::refuse(Connection& connection, HeadFault fault) { return impl_->refuse(connection, fault); }

}  // namespace shared_tensor::http
