#include "server/rpc/rpc_socket.hpp"

#include <utility>

#include "base/concurrency/at_end.hpp"
#include "base/log/log.hpp"
#include "protocol/codec/frame.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::server {

using json_rpc::Error;
using json_rpc::Json;

namespace {

std::string text_of(const Json& id) {
    std::string text;
    json_rpc::print_json(id, text);
    return text;
}

constexpr std::uint64_t kMostUnread = 64 << 20;  // unsent bytes, for a peer that sends further requests

}  // namespace

struct RpcSocket::Message {
    json_rpc::Message parsed;
    std::span<const std::byte> tensors{};
    std::shared_ptr<PooledBuffer> bytes{};
    std::string_view json{};       ///< a view into `bytes`
    RpcEndpoint::Target target{};  ///< of the only request
};

/// Moves the only request out of the message.
json_rpc::Request RpcSocket::take_request(Message& message) {
    return std::move(std::get<json_rpc::Request>(message.parsed.items.front()));
}

/// The ResponseStream of one call. It reports the end of the socket as the end of the client.
class RpcSocket::ResponseStream final : public net::ResponseStream {
public:
    explicit ResponseStream(std::shared_ptr<RpcSocket> socket) : socket_(std::move(socket)) {}
    ResponseStream(const ResponseStream&) = delete;
    ResponseStream& operator=(const ResponseStream&) = delete;
    ~ResponseStream() override {
        if (held_) socket_->threads_.release_hold();
        if (watch_ == nullptr) return;
        socket_->calls_.with([&](Calls& calls) { calls.watches.erase(this); });
        watch_->unwatch();
    }
    void on_client_gone(std::function<void()> gone) override {
        watch_ = std::make_shared<net::GoneWatch>();
        watch_->watch(std::move(gone));
        const bool too_late = socket_->calls_.with([&](Calls& calls) {
            if (!calls.gone) calls.watches.emplace(this, watch_);
            return calls.gone;
        });
        if (too_late) watch_->report();
    }

    bool may_take_long() override { return held_ = held_ || socket_->threads_.hold(); }

private:
    const std::shared_ptr<RpcSocket> socket_;
    std::shared_ptr<net::GoneWatch> watch_;
    bool held_ = false;
};

RpcSocket::RpcSocket(Services& all, const RpcEndpoint& rpc, Threads& threads, std::shared_ptr<net::WebSocket> socket,
                     const net::Headers& headers, Principal principal)
    : all_(all),
      rpc_(rpc),
      threads_(threads),
      socket_(std::move(socket)),
      out_(std::make_shared<SocketOut>(socket_)),
      defaults_(read_headers(headers)),
      principal_(std::move(principal)) {}

void RpcSocket::run() {
    const AtEnd gone([this] { all_gone(); });
    const net::WebSocketEnd end = socket_->run([this](net::WebSocketMessage message) { receive(std::move(message)); });
    if (end.code == net::CloseCode::abnormal) log::debug("a WebSocket ended: ", end.reason);
}

void RpcSocket::all_gone() {
    std::unordered_map<std::string, Stream> streams;
    std::unordered_map<const void*, std::shared_ptr<net::GoneWatch>> watches;
    std::unordered_map<std::string, std::shared_ptr<TaskWatches::Watch>> watched;
    calls_.with([&](Calls& calls) {
        calls.gone = true;
        watched.swap(calls.tasks);
        streams.swap(calls.streams);
        watches.swap(calls.watches);
    });
    for (const auto& [id, stream] : streams) {
        if (const auto execution = stream.execution.lock()) execution->cancel();
    }
    for (const auto& [response_stream, watch] : watches)
        watch->report();
}

void RpcSocket::close() { socket_->close(net::CloseCode::going_away, "the server is shutting down"); }

void RpcSocket::drain() {
    const bool idle = calls_.with([](Calls& calls) {
        calls.draining = true;
        return calls.running == 0;
    });
    if (idle) close();
}

void RpcSocket::break_off(const std::string& reason) { socket_->close(net::CloseCode::policy_violation, reason); }

void RpcSocket::leave_revoked() {
    if (principal_.is_revoked()) break_off("the token is not valid any more");
}

/// Answers a request or a whole batch with an error. A notification gets no answer.
void RpcSocket::reject(const json_rpc::Request* request, const Error& error) {
    if (request != nullptr && request->is_notification()) return;
    answer_with(request != nullptr ? request->id.value_or(nullptr) : Json(), error);
}

/// Closes the socket of a peer that sends requests but does not read the answers.
void RpcSocket::answer_with(const Json& id, const Error& error) {
    if (socket_->unsent() > kMostUnread) return break_off("the client sends requests but does not read the answers");
    std::string text;
    json_rpc::print({id, error}, text);
    out_->say(std::move(text));
}

void RpcSocket::receive(net::WebSocketMessage received) {
    codec::Frame frame{received.text(), {}};
    if (received.binary) {
        const auto split = codec::split_frame(received.bytes->bytes());
        if (!split) return answer_with(nullptr, json_rpc::parse_error("a binary message is no frame"));
        frame = *split;
    }
    if (const streams::StreamMessage* const known = last_item_.find(frame.json);
        known != nullptr && !principal_.is_revoked()) {
        const std::uint64_t cost = received.bytes->size() + known->elsewhere_bytes;
        return hear(*known, {known->value, frame.tensors, std::move(received.bytes), cost});
    }
    auto parsed = rpc_.parse(frame.json);
    if (const auto* rejected = std::get_if<json_rpc::Response>(&parsed))
        return answer_with(rejected->id, *rejected->error());
    Message message{std::move(std::get<json_rpc::Message>(parsed)), frame.tensors, std::move(received.bytes),
                    frame.json};
    if (principal_.is_revoked()) return leave_revoked();
    const json_rpc::Request* request = RpcEndpoint::only_request(message.parsed);
    const bool is_stream_message = request != nullptr && streams::is_stream_message(request->method);
    if (!is_stream_message && principal_.use != nullptr) {
        if (const auto wait = principal_.use->requests.take()) return reject(request, too_many_requests(*wait));
    }
    if (request != nullptr && request->method == "task.watch") return watch_task(*request);
    if (request != nullptr && request->method == "task.unwatch") return unwatch_task(*request);
    if (!is_stream_message) return start(std::move(message));
    json_rpc::Request stream_message = take_request(message);
    take_stream_message(std::move(stream_message), std::move(message));
}

void RpcSocket::take_stream_message(json_rpc::Request request, Message message) {
    const std::optional<Json> id = request.id;
    auto read = streams::read_stream_message(std::move(request));
    if (const auto* rejection = std::get_if<std::string>(&read))
        return answer_with(id.value_or(nullptr), json_rpc::invalid_request(*rejection));
    auto& stream_message = std::get<streams::StreamMessage>(read);
    last_item_.keep(message.json, stream_message);
    const std::uint64_t cost = message.bytes->size() + stream_message.elsewhere_bytes;
    streams::Item item{std::move(stream_message.value), message.tensors, std::move(message.bytes), cost};
    hear(stream_message, std::move(item));
}

/// Messages for a finished call are ignored: they were on their way. Before stream.ready a call can only be cancelled.
void RpcSocket::hear(const streams::StreamMessage& stream_message, streams::Item item) {
    const bool cancels = stream_message.kind == streams::StreamMessage::Kind::cancel;
    std::shared_ptr<StreamCall> call;
    std::shared_ptr<runtime::Execution> execution;
    bool too_early = false;
    calls_.with([&](Calls& calls) {
        const auto found = calls.streams.find(text_of(stream_message.call));
        if (found == calls.streams.end()) return;
        Stream& stream = found->second;
        stream.cancelled |= cancels;
        too_early = !stream.is_ready && !cancels;
        call = stream.call.lock();
        execution = stream.execution.lock();
    });
    if (too_early) return break_off("messages of a call must not be sent before stream.ready");
    if (call == nullptr) return;
    if (cancels) {
        if (execution != nullptr) execution->cancel();
        return;
    }
    if (stream_message.kind == streams::StreamMessage::Kind::ready)
        return break_off("only the server may send stream.ready");
    const std::string rejection = call->take(stream_message, std::move(item));
    if (!rejection.empty()) break_off(rejection);
}

void RpcSocket::start(Message message) {
    enum class Verdict { go, busy, draining };
    const Verdict verdict = calls_.with([&](Calls& calls) {
        if (calls.draining) return Verdict::draining;
        if (calls.running >= all_.options.sockets.max_calls) return Verdict::busy;
        ++calls.running;
        return Verdict::go;
    });
    const json_rpc::Request* request = RpcEndpoint::only_request(message.parsed);
    const Json id = request != nullptr ? request->id.value_or(nullptr) : Json();
    const bool is_silent = request != nullptr && request->is_notification();
    if (verdict == Verdict::draining) return reject(request, json_rpc::shutting_down());
    if (verdict == Verdict::busy) return reject(request, json_rpc::busy(std::chrono::milliseconds(100)));
    if (request != nullptr) message.target = rpc_.find(request->method);
    const bool streams = message.target.streams();
    if (streams) {
        const auto enter = [&](Calls& calls) { return calls.streams.try_emplace(text_of(id)).second; };
        const char* const rejection = id.is_null()         ? "a call that streams needs an id: its items name it"
                                      : calls_.with(enter) ? nullptr
                                                           : "a call with that id streams already";
        if (rejection != nullptr) {
            answer_with(id, json_rpc::invalid_request(rejection));
            return call_ended();
        }
    }
    const auto shared = std::make_shared<Message>(std::move(message));
    const bool taken = threads_.submit([self = shared_from_this(), shared] { self->answer(std::move(*shared)); });
    if (taken) return;
    if (streams) leave(text_of(id));
    if (!is_silent) answer_with(id, json_rpc::busy(std::chrono::milliseconds(100)));
    call_ended();
}

void RpcSocket::call_ended() {
    const bool close_now = calls_.with([](Calls& calls) { return --calls.running == 0 && calls.draining; });
    if (close_now) close();
}

void RpcSocket::answer(Message message) {
    const AtEnd ended([this] { call_ended(); });
    const json_rpc::Request* request = RpcEndpoint::only_request(message.parsed);
    const Json id = request != nullptr ? request->id.value_or(nullptr) : Json();
    try {
        if (message.target.streams()) {
            open_stream(take_request(message), message);
        } else {
            ResponseStream response_stream(shared_from_this());
            RpcEndpoint::Received received{std::move(message.parsed), {message.tensors, message.bytes}, {}};
            if (request != nullptr) received.target.emplace(std::move(message.target));
            out_->answer_whole(rpc_.answer(std::move(received), defaults_, principal_, response_stream));
        }
    } catch (const std::bad_alloc&) {
        answer_with(id, json_rpc::out_of_memory("the call needed more memory than there is"));
    } catch (const std::exception& error) {
        log::error("a call on a WebSocket: ", error.what());
        answer_with(id, json_rpc::internal_error());
    }
}

/// Runs the call to its end on this thread.
void RpcSocket::open_stream(const json_rpc::Request& request, const Message& message) {
    const Json& id = *request.id;
    const std::string key = text_of(id);
    bool entered = true;
    const auto left = [&] {
        if (std::exchange(entered, false)) leave(key);
    };
    const AtEnd at_end(left);
    const auto fail = [&](const Error& error) {
        left();  // first: the client may use the id again once it has the answer
        answer_with(id, error);
    };
    auto made = StreamCall::make(all_, request, message.target.function, defaults_, principal_, out_);
    if (const auto* error = std::get_if<Error>(&made)) return fail(*error);
    const auto& call = std::get<std::shared_ptr<StreamCall>>(made);
    if (!threads_.hold()) return fail(no_thread());
    const AtEnd released([&] { threads_.release_hold(); });
    auto opened = call->open(request, {message.tensors, message.bytes});
    if (const auto* error = std::get_if<Error>(&opened)) return fail(*error);
    auto& run = std::get<runtime::StreamRun>(opened);
    const bool is_over = calls_.with([&](Calls& calls) {
        Stream& stream = calls.streams[key];
        stream = {true, stream.cancelled, call, run.execution()};
        return calls.gone || stream.cancelled;
    });
    if (is_over) run.execution()->cancel();
    out_->say(streams::ready(id, call->infos(), call->window()));
    run.execution()->observe({{}, {}, [self = shared_from_this(), call](const runtime::OutcomePointer& outcome) {
                                  self->finish_stream(*call, *outcome);
                              }});
    entered = false;  // finish_stream() calls leave(); then another call may use the id, even before run() returns
    run.run();
}

void RpcSocket::leave(const std::string& key) {
    calls_.with([&](Calls& calls) { calls.streams.erase(key); });
}

/// Ends the streams of a call and sends its answer. Later messages of its function are dropped.
void RpcSocket::finish_stream(StreamCall& call, const runtime::CallOutcome& outcome) {
    leave(text_of(call.id()));
    try {
        call.finish(outcome);
    } catch (const std::exception& error) {
        log::error("an answer could not be made: ", error.what());
        out_->abandon();  // closes the connection, so that the client does not wait for an answer
    }
}

}  // namespace shared_tensor::server
