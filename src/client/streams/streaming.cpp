#include "client/streams/streaming.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>
#include <variant>

#include "client/local/shared_memory.hpp"
#include "local/channel/channel.hpp"
#include "protocol/codec/frame.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::client {

namespace {

using json_rpc::Json;

/// At the deadline of a call the server ends it with an error. If that does not come, the client ends the call.
constexpr std::chrono::seconds kServerAnswersLate{1};

std::exception_ptr error_of(const json_rpc::Error& error, const std::string& method) {
    try {
        throw_error(error, method);
    } catch (...) {
        return std::current_exception();
    }
}

/// The leases of the tensors in an item.
std::vector<std::string> leases_in(const streams::Item& item) {
    std::vector<std::string> leases;
    if (item.value == nullptr || !item.value->is_structured()) return leases;
    for_each_lease(*item.value, [&](const Json&, const std::string& lease) { leases.push_back(lease); });
    return leases;
}

/// The item may be read much later.
void confirm_leases(const streams::Item& item, Core& core) {
    const auto leases = leases_in(item);
    const auto memory = leases.empty() ? nullptr : core.ports().memory();
    if (memory != nullptr) memory->confirm(leases);
}

/// Releases the tensors and objects of an item that will not be read.
void abandon_item(const streams::Item& item, Core& core) noexcept {
    try {
        if (const auto leases = leases_in(item); !leases.empty()) core.ports().abandon(leases);
        if (item.value == nullptr || !item.value->is_structured()) return;
        AnsweredObjects(core.weak_from_this()).read_all(*item.value);
    } catch (const std::exception&) {  // no memory, or not a handle: the object ends with its session
    }
}

class ReadSlot final : public detail::ResultSlot {
public:
    explicit ReadSlot(const detail::ItemSource::Read& how) : read_(how) {}
    void read(const ValueReader& reader) override { read_(reader); }

private:
    const detail::ItemSource::Read& read_;
};

}  // namespace

Streaming::~Streaming() {
    on_stop_.reset();
    cancel();
    setup_.socket->abort();
    thread_ = {};
    for (const streams::Flow& flow : flows())
        abandon(flow.close(false));
    abandon_item(take_result(), *setup_.core);
}

void Streaming::open(const Outgoing& request, SteadyTime deadline) {
    if (setup_.deadline) setup_.socket->end_at(*setup_.deadline + kServerAnswersLate);
    thread_ = std::jthread([this] { run(); });
    on_stop_.emplace(setup_.options.stop, [this] { cancel(); });
    setup_.socket->send(request.content_type() == codec::kFrameContentType, request.body());
    const auto answered = [](const State& now) { return now.ready || now.outcome; };
    if (!state_.lock().wait_until(deadline, answered)) throw_late(setup_.method, setup_.core->url());
    if (state_.with([](const State& now) { return now.ready || now.answered; })) request.answered();
    if (!state_.with([](const State& now) { return now.ready; })) check();
}

std::vector<streams::Flow> Streaming::flows() const {
    return state_.with([](const State& now) { return now.flows; });
}

/// The stream of that name, or the only stream in that direction.
streams::Flow Streaming::give(std::string_view name, bool written) {
    std::string known;
    std::vector<streams::Flow> fitting;
    const auto reject = [&](const std::string& why) {
        throw std::invalid_argument(setup_.method + (written ? ": no Writer" : ": no Reader") +
                                    " is available: " + why);
    };
    for (streams::Flow& flow : flows()) {
        if (flow.info.reads != written) continue;
        known.append(known.empty() ? "" : ", ").append(flow.info.name);
        if (name.empty() || flow.info.name == name) fitting.push_back(std::move(flow));
    }
    if (fitting.empty())
        reject("the function " + std::string(written ? "reads" : "writes") + " " +
               (known.empty() ? "no stream" : known));
    if (fitting.size() > 1) reject("name one of " + known);
    const std::string& chosen = fitting.front().info.name;
    if (!state_.with([&](State& now) { return now.given.insert(chosen).second; }))
        reject("there is one for " + chosen + " already");
    return fitting.front();
}

void Streaming::run() {
    net::WebSocketEnd end;
    try {
        end = setup_.socket->run([this](const net::WebSocketMessage& message) { receive(message); });
    } catch (const std::exception& error) {
        end.reason = error.what();
    }
    if (setup_.options.stop.stop_requested()) return fail(cancelled(), false);
    if (setup_.deadline && setup_.core->clock().now() >= *setup_.deadline) {
        return fail(DeadlineExceeded(static_cast<int>(ErrorCode::deadline_exceeded), "Deadline exceeded", {},
                                     setup_.method + ": the call was not over in its time (CallOptions::timeout), and "
                                                     "the server did not end it"));
    }
    const std::string where = setup_.method + ": " + setup_.core->url() + ": ";
    const bool down = setup_.core->is_shut_down();
    if (!down && end.code == net::CloseCode::going_away)  // the server may not have sent its answer
        return fail(
            ShuttingDown(static_cast<int>(ErrorCode::shutting_down), "Shutting down", {}, where + end.reason, true));
    const std::string why =
        down ? "the client was shut down"
             : "the connection broke" + (end.reason.empty() ? std::string() : " (" + end.reason + ")");
    fail(TransportFailure(where + why + " before the call was over", true));
}

void Streaming::receive(const net::WebSocketMessage& message) {
    codec::Frame frame{message.text(), {}};
    if (message.binary) {
        const auto split = codec::split_frame(message.bytes->bytes());
        if (!split) return break_off("a binary message is no frame");
        frame = *split;
    }
    if (const streams::StreamMessage* const known = last_item_.find(frame.json))
        return hear(*known, {{}, frame.tensors, message.bytes, message.bytes->size()});
    const auto limits = limits_of(message.bytes->size());
    auto json = json_rpc::parse_json(frame.json, limits.json);
    if (const auto* error = std::get_if<json_rpc::JsonTextError>(&json)) return break_off(error->detail);
    auto& value = std::get<Json>(json);
    streams::Item item{{}, frame.tensors, message.bytes, message.bytes->size()};
    if (!value.is_object() || !value.contains("method")) {
        auto answers = json_rpc::parse_response_value(std::move(value), limits);
        if (const auto* rejection = std::get_if<std::string>(&answers)) return break_off(*rejection);
        return take_answer(std::move(std::get<std::vector<json_rpc::Response>>(answers).front()), std::move(item));
    }
    auto parsed = json_rpc::parse_value(std::move(value), limits);
    auto* requests = std::get_if<json_rpc::Message>(&parsed);
    auto* request = requests == nullptr ? nullptr : std::get_if<json_rpc::Request>(&requests->items.front());
    if (request == nullptr) return break_off("a message is neither an answer nor a notification");
    if (!streams::is_stream_message(request->method)) return;  // of a later version of the protocol
    auto stream_message = streams::read_stream_message(std::move(*request));
    if (const auto* rejection = std::get_if<std::string>(&stream_message)) return break_off(*rejection);
    last_item_.keep(frame.json, std::get<streams::StreamMessage>(stream_message));
    hear(std::get<streams::StreamMessage>(stream_message), std::move(item));
}

void Streaming::break_off(std::string_view why) {
    setup_.socket->close(net::CloseCode::policy_violation, why);
    fail(ProtocolFailure(
        setup_.method + ": " + setup_.core->url() + " does not keep to the protocol: " + std::string(why), true));
}

void Streaming::hear(const streams::StreamMessage& stream_message, streams::Item item) {
    using Kind = streams::StreamMessage::Kind;
    if (stream_message.call != setup_.id) return;
    if (stream_message.kind == Kind::ready) {
        const bool again = state_.with([](const State& now) { return now.ready; });
        return again ? break_off("it reports twice that it is ready") : become_ready(stream_message);
    }
    const auto flow = state_.with([&](const State& now) {
        const streams::Flow* found = streams::find(now.flows, stream_message.stream);
        return found != nullptr ? std::optional(*found) : std::nullopt;
    });
    if (!flow || stream_message.kind == Kind::cancel) return break_off("it names a stream that does not exist");
    item.value = stream_message.value;
    item.cost += stream_message.elsewhere_bytes;
    if (stream_message.kind == Kind::item) confirm_leases(item, *setup_.core);
    const streams::Item unread{item.value};
    const streams::Heard heard = streams::hear(*flow, stream_message, std::move(item));
    if (!heard.rejection.empty()) break_off(heard.rejection);
    if (!heard.item_kept) abandon_item(unread, *setup_.core);
}

void Streaming::become_ready(const streams::StreamMessage& stream_message) {
    const ClientOptions& options = setup_.core->options();
    const streams::Window window = options.stream_window;
    state_.with([&](State& now) {
        if (now.outcome) return;  // cancelled meanwhile: finish() would not close these streams
        for (const streams::StreamInfo& info : stream_message.streams)
            now.flows.push_back(streams::Flow::make(info, !info.reads, window, stream_message.window));
        now.ready = true;
    });
    state_.notify_all();
}

void Streaming::take_answer(json_rpc::Response answer, streams::Item item) {
    if (answer.id != setup_.id && !(answer.id.is_null() && answer.error() != nullptr)) return;
    StreamOutcome outcome;
    if (const auto* error = answer.error()) {
        outcome.error = error_of(*error, setup_.method);
    } else {
        item.value = std::make_shared<const Json>(*answer.result());
        confirm_leases(item, *setup_.core);
        outcome.result = std::move(item);
        for (const streams::Flow& flow : flows()) {  // the function reads no more items
            if (flow.out != nullptr) flow.out->all_taken();
        }
    }
    state_.with([](State& now) { now.answered = true; });
    finish(std::move(outcome), true);
    setup_.socket->close(net::CloseCode::normal, "");
}

/// Only the first outcome counts.
void Streaming::finish(StreamOutcome outcome, bool then_read) {
    const bool first = state_.with([&](State& now) {
        if (now.outcome) return false;
        now.outcome = std::move(outcome);
        return true;
    });
    if (!first) return abandon_item(outcome.result, *setup_.core);
    for (const streams::Flow& flow : flows())
        abandon(flow.close(then_read));
    state_.notify_all();
}

void Streaming::check() const {
    const std::exception_ptr error =
        state_.with([](const State& now) { return now.outcome ? now.outcome->error : std::exception_ptr(); });
    if (error) std::rethrow_exception(error);
}

void Streaming::read(const streams::Flow& flow, streams::Item item, const Read& read) {
    const std::uint64_t number = item.number;
    ReadSlot slot(read);
    try {
        read_value(std::move(item), slot);
    } catch (const ResultMismatch& error) {
        throw ResultMismatch(streams::place_of(flow, number, error.path), error.expected, error.got);
    }
}

void Streaming::read_value(streams::Item item, detail::ResultSlot& slot) const {
    Core& core = *setup_.core;
    const Incoming value = Incoming::of_value(std::move(item.value), item.tensors, std::move(item.owner), core.ports(),
                                              {setup_.memory, false, core.weak_from_this(), &setup_.options});
    core.read_within(setup_.deadline.value_or(SteadyTime::max()), setup_.options, setup_.method,
                     [&] { value.result(slot); });
}

void Streaming::send(const streams::Flow& flow, std::string text_before, const Write& write) {
    const local::WaitLimit limit =
        setup_.core->wait_limit(setup_.deadline.value_or(SteadyTime::max()), setup_.options.stop);
    OutgoingPort port(setup_.core->ports(), required());
    json_rpc::LongText text(std::move(text_before));
    const codec::Value value = streams::print_item(write, port, codec::JsonSink::References::write, &handle_of, text);
    std::string json = text.take_whole();
    std::vector<net::BodyPart> parts;
    if (port.used() != nullptr) parts = port.used()->parts();
    std::uint64_t in_message = 0;
    for (const net::BodyPart& part : parts)
        in_message += part.bytes.size();
    const bool names_memory = port.used() != nullptr && !port.used()->memory().empty();
    const std::uint64_t elsewhere = names_memory ? streams::bytes_elsewhere(value, in_message) : 0;
    json += streams::item_end(elsewhere);
    std::function<void()> taken;
    if (names_memory) taken = [tensors = std::shared_ptr<OutgoingTensors>(port.take())] { tensors->answered(); };
    flow.out->sent(streams::message_bytes(json.size(), in_message) + elsewhere, std::move(taken));
    if (parts.empty()) return say(std::move(json));
    if (!setup_.socket->send_from(codec::frame_head(json), std::move(parts))) check();
}

/// The server reads the items with the session of the call, so memory of a later session cannot be used.
std::string Streaming::required() const {
    const bool other = setup_.core->ports().session() != setup_.memory;
    return other && setup_.options.require.empty() ? "body" : setup_.core->required(setup_.options);
}

void Streaming::abandon(const std::deque<streams::Item>& items) noexcept {
    for (const streams::Item& item : items)
        abandon_item(item, *setup_.core);
}

/// A Writer that an exception destroys has not written all items, so the call is cancelled.
void Streaming::leave(const streams::Flow& flow, bool thrown) noexcept {
    if (!process_.is_here()) return;
    try {
        if (!thrown) return say(streams::end(setup_.id, flow.info.name));
    } catch (const std::exception&) {  // no memory for the message that the stream is complete
    }
    cancel();
}

streams::Item Streaming::take_result() {
    return state_.with(
        [](State& now) { return now.outcome ? std::exchange(now.outcome->result, {}) : streams::Item{}; });
}

void Streaming::result(detail::ResultSlot& slot) {
    check_process();
    for (const streams::Flow& flow : flows()) {
        if (!state_.with([&](State& now) { return now.given.insert(flow.info.name).second; })) continue;
        if (flow.in != nullptr) abandon(flow.in->close(false));
        say(flow.info.reads ? streams::end(setup_.id, flow.info.name) : streams::stop(setup_.id, flow.info.name));
    }
    setup_.socket->stop_inline_reads();
    state_.lock().wait([](const State& now) { return now.outcome.has_value(); });
    check();
    streams::Item item = take_result();
    if (item.value == nullptr) throw std::logic_error(setup_.method + ": its result was read already");
    read_value(std::move(item), slot);
}

Cancelled Streaming::cancelled() const {
    return {static_cast<int>(ErrorCode::cancelled),
            "Cancelled",
            {},
            setup_.method + ": the call was cancelled by its client"};
}

void Streaming::cancel() noexcept {
    if (!process_.is_here()) return;
    try {
        if (state_.with([](const State& now) { return now.outcome.has_value(); })) return;
        say(streams::cancel(setup_.id));
        fail(cancelled(), false);
        setup_.socket->close(net::CloseCode::normal, "");
    } catch (const std::exception&) {
        setup_.socket->abort();
    }
}

std::shared_ptr<detail::CallerStreams> open_stream(const std::shared_ptr<Core>& core,
                                                   std::shared_ptr<const void> session, std::string_view method,
                                                   const CallArguments& arguments, const CallOptions& options) {
    if (!options.idempotency_key.empty())
        throw std::invalid_argument(std::string(method) +
                                    ": a call with streams has no idempotency key: its items come only once");
    Core::Times times = core->times_of(options);
    const local::WaitLimit limit = core->wait_limit(times.deadline, options.stop);
    core->agree_on_coding(options);
    CallOptions once = options;  // a call that was sent is not repeated, because its items may have crossed
    once.idempotent = false;
    const auto attempt = [&](int&) -> std::shared_ptr<detail::CallerStreams> {
        check_stop(options, method);
        Outgoing request = core->compose(Outgoing::Form::single, 1, options);
        const streams::Window window = core->options().stream_window;
        Json meta{{"stream_window", {{"items", window.items}, {"bytes", window.bytes}}}};
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(times.deadline - core->clock().now());
        if (options.timeout) meta["timeout_ms"] = std::clamp<std::int64_t>(left.count(), 1, 86'400'000);
        request.call(method, arguments, std::move(meta));
        request.finish();
        const std::string shared = core->session_for(request);
        CallOptions later = options;  // for requests that fetch tensors of the call's messages
        later.timeout.reset();
        const auto call = shared_in_its_process(
            new Streaming({core, session, std::move(later), request.first_id(), std::string(method), shared,
                           core->connect_web_socket(method, options, shared, times.deadline),
                           options.timeout ? std::optional(times.deadline) : std::nullopt}));
        try {
            call->open(request, times.deadline);
        } catch (const RpcError& error) {
            const bool own_session = options.session.empty() && !shared.empty();
            const bool unknown = error.is(ErrorCode::unknown_or_expired) && details_of(error).kind == "session";
            if (!own_session || !unknown) throw;
            core->forget_session(shared);
        }
        return call;
    };
    return core->counted(times.start, [&] { return core->retried(once, times, attempt); });
}

}  // namespace shared_tensor::client
