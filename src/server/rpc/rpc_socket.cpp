#include "server/rpc/rpc_socket.hpp"

#include <utility>

#include "base/concurrency/at_end.hpp"
#include "base/log/log.hpp"
#include "protocol/codec/frame.hpp"
#include "protocol/json_rpc/message.hpp"
#include "server/methods/methods.hpp"

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
/// The limit of task subscriptions of one socket. A client can ask for the state of further tasks. Each subscription
/// costs some hundred bytes.
constexpr std::size_t kMaxWatches = 1000;

}  // namespace

/// The ResponseStream of one call. It reports the end of the socket as the end of the client.
class RpcSocket::ResponseStream final : public net::ResponseStream {
public:
    explicit ResponseStream(RpcSocket& socket) : socket_(socket) {}
    ResponseStream(const ResponseStream&) = delete;
    ResponseStream& operator=(const ResponseStream&) = delete;
    ~ResponseStream() override {
        if (held_) socket_.threads_.release_hold();
    }
    std::stop_token client_gone() override { return socket_.gone_.get_token(); }
    bool may_take_long() override { return held_ = held_ || socket_.threads_.hold(); }

private:
    RpcSocket& socket_;
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
    const AtEnd gone([this] {
        gone_.request_stop();
        const auto watched = calls_.with([](Calls& calls) { return std::exchange(calls.tasks, {}); });
    });
    const net::WebSocketEnd end = socket_->run([this](net::WebSocketMessage message) { receive(std::move(message)); });
    if (end.code == net::CloseCode::abnormal) log::debug("a WebSocket ended: ", end.reason);
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

void RpcSocket::answer_with(const Json& id, const Error& error) {
    std::string text;
    json_rpc::print({id, error}, text);
    say(std::move(text));
}

/// Closes the socket of a peer that sends requests but does not read what it gets.
void RpcSocket::say(std::string text) {
    if (socket_->unsent() > kMostUnread) return break_off("the client sends requests but does not read the answers");
    out_->say(std::move(text));
}

void RpcSocket::receive(net::WebSocketMessage received) {
    codec::Frame frame{received.text(), {}};
    if (received.binary) {
        const auto split = codec::split_frame(received.bytes->bytes());
        if (!split) return answer_with(nullptr, json_rpc::parse_error("a binary message is no frame"));
        frame = *split;
    }
    const std::uint64_t bytes = received.bytes->size();
    if (const streams::StreamMessage* const known = last_item_.find(frame.json);
        known != nullptr && !principal_.is_revoked())
        return hear(*known, {known->value, frame.tensors, std::move(received.bytes), bytes + known->elsewhere_bytes});
    auto parsed = rpc_.parse(frame.json);
    if (const auto* rejected = std::get_if<json_rpc::Response>(&parsed))
        return answer_with(rejected->id, *rejected->error());
    if (principal_.is_revoked()) return leave_revoked();
    auto& message = std::get<json_rpc::Message>(parsed);
    json_rpc::Request* request = RpcEndpoint::only_request(message);
    if (request != nullptr && streams::is_stream_message(request->method)) {
        const Json id = request->id.value_or(nullptr);
        auto read = streams::read_stream_message(std::move(*request));
        if (const auto* rejection = std::get_if<std::string>(&read))
            return answer_with(id, json_rpc::invalid_request(*rejection));
        const auto& item = std::get<streams::StreamMessage>(read);
        last_item_.keep(frame.json, item);
        return hear(item, {item.value, frame.tensors, std::move(received.bytes), bytes + item.elsewhere_bytes});
    }
    if (principal_.use != nullptr) {
        if (const auto wait = principal_.use->requests.take()) {
            all_.rejections.count(RejectedFor::rate);
            return reject(request, too_many_requests(*wait));
        }
    }
    if (request != nullptr && (request->method == "task.watch" || request->method == "task.unwatch"))
        return subscribe(*request);
    start({std::move(message), {frame.tensors, std::move(received.bytes)}});
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

void RpcSocket::start(RpcEndpoint::Received received) {
    const json_rpc::Request* request = RpcEndpoint::only_request(received.message);
    const auto rejection = calls_.with([&](Calls& calls) -> std::optional<Error> {
        if (calls.draining) return json_rpc::shutting_down();
        if (calls.running >= all_.options.sockets.max_calls) return json_rpc::busy(std::chrono::milliseconds(100));
        ++calls.running;
        return std::nullopt;
    });
    if (rejection) {
        all_.rejections.count_code(rejection->code);
        return reject(request, *rejection);
    }
    const Json id = request != nullptr ? request->id.value_or(nullptr) : Json();
    const bool is_silent = request != nullptr && request->is_notification();
    if (request != nullptr) received.target = rpc_.find(request->method);
    const bool streams = received.target && received.target->streams();
    if (streams) {
        const auto enter = [&](Calls& calls) { return calls.streams.try_emplace(text_of(id)).second; };
        const char* const fault = id.is_null()         ? "a call that streams needs an id: its items name it"
                                  : calls_.with(enter) ? nullptr
                                                       : "a call with that id streams already";
        if (fault != nullptr) {
            answer_with(id, json_rpc::invalid_request(fault));
            return call_ended();
        }
    }
    const auto shared = std::make_shared<RpcEndpoint::Received>(std::move(received));
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

void RpcSocket::answer(RpcEndpoint::Received received) {
    const AtEnd ended([this] { call_ended(); });
    const json_rpc::Request* request = RpcEndpoint::only_request(received.message);
    const Json id = request != nullptr ? request->id.value_or(nullptr) : Json();
    try {
        if (received.target && received.target->streams()) return open_stream(*request, received);
        ResponseStream response_stream(*this);
        out_->answer_whole(rpc_.answer(std::move(received), defaults_, principal_, response_stream));
    } catch (const std::bad_alloc&) {
        answer_with(id, json_rpc::out_of_memory("the call needed more memory than there is"));
    } catch (const std::exception& error) {
        log::error("a call on a WebSocket: ", error.what());
        answer_with(id, json_rpc::internal_error());
    }
}

/// Runs the call to its end on this thread.
void RpcSocket::open_stream(const json_rpc::Request& request, const RpcEndpoint::Received& received) {
    const Json& id = *request.id;
    const std::string key = text_of(id);
    bool entered = true;
    const auto left = [&] {
        if (std::exchange(entered, false)) leave(key);
    };
    const AtEnd at_end(left);
    try {
        const auto call = StreamCall::make(all_, request, received.target->function, defaults_, principal_, out_);
        if (!threads_.hold()) throw Rejected(no_thread());
        const AtEnd released([&] { threads_.release_hold(); });
        auto run = call->open(request, received.tensors);
        const auto execution = run.execution();
        const std::stop_callback gone(gone_.get_token(), [&] { cancel_run(*execution); });
        const bool is_over = calls_.with([&](Calls& calls) {
            Stream& stream = calls.streams[key];
            stream = {true, stream.cancelled, call, execution};
            return stream.cancelled;
        });
        if (is_over) execution->cancel();
        out_->say(streams::ready(id, call->infos(), call->window()));
        execution->observe({{}, {}, [self = shared_from_this(), call](const runtime::OutcomePointer& outcome) {
                                self->finish_stream(*call, *outcome);
                            }});
        entered = false;  // finish_stream() calls leave(); then another call may use the id, even before run() returns
        run.run();
    } catch (const Rejected& rejected) {
        received.target->stats()->count(rejected.error.code);
        log_rejected(all_, request, defaults_, principal_, rejected.error.code);
        left();  // first: the client may use the id again once it has the answer
        answer_with(id, rejected.error);
    }
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

void RpcSocket::subscribe(const json_rpc::Request& request) {
    if (request.is_notification()) return;
    try {
        const auto [task] = Parameters<std::string>({"id"}).read(request.params);
        const bool watches = request.method == "task.watch";
        if (!watches) forget_watch(task);
        std::string text;
        json_rpc::print(json_rpc::Response{*request.id, watches ? watch_task(task) : Json{{"watched", false}}}, text);
        say(std::move(text));
    } catch (const Rejected& rejected) {
        answer_with(*request.id, rejected.error);
    }
}

/// Returns the current state of the task; task.changed notifications report later states.
Json RpcSocket::watch_task(const std::string& task) {
    const auto owner = owner_filter(principal_);
    const auto watch = all_.watches.watch(task, owner, [weak = weak_from_this(), task](const tasks::TaskInfo* info) {
        const auto self = weak.lock();
        if (self == nullptr) return;
        const bool over = info == nullptr || tasks::is_terminal(info->state);
        if (over) self->forget_watch(task);  // first: the client may now watch the next task
        if (info == nullptr) return;
        std::string text;
        json_rpc::print({"task.changed", task_json(*info), std::nullopt, nullptr}, text);
        self->say(std::move(text));
    });
    const bool taken = calls_.with([&](Calls& calls) {
        if (calls.tasks.size() >= kMaxWatches && !calls.tasks.contains(task)) return false;
        calls.tasks.insert_or_assign(task, watch);
        return true;
    });
    if (!taken) throw Rejected(json_rpc::busy(std::chrono::seconds(1)));
    const auto info = all_.dispatcher.tasks().get(task, owner);
    if (!info || tasks::is_terminal(info->state)) forget_watch(task);
    if (!info) throw Rejected(json_rpc::unknown_or_expired("task", all_.epoch));
    return task_json(*info);
}

void RpcSocket::forget_watch(const std::string& task) {
    const auto gone =
        calls_.with([&](Calls& calls) { return calls.tasks.extract(task); });  // destroyed without the lock
}

}  // namespace shared_tensor::server
