#include "client/stream_call.hpp"

#include <algorithm>
#include <thread>
#include <variant>

#include "client/failure.hpp"
#include "client/session.hpp"
#include "client/stream_ends.hpp"
#include "codec/frame.hpp"
#include "json_rpc/parse.hpp"
#include "json_rpc/parse_responses.hpp"
#include "streams/last_item.hpp"
#include "util/of_this_process.hpp"

namespace shared_tensor::client {

namespace {

using json_rpc::Json;
using std::chrono::milliseconds;

/// What comes from a server may nest deeper than requests.
json_rpc::ParseLimits limits_of(std::size_t bytes) {
    json_rpc::ParseLimits limits;
    limits.json.max_depth = 500;
    limits.json.max_bytes = bytes;
    return limits;
}

std::exception_ptr cancelled(const std::string& method) {
    return std::make_exception_ptr(Cancelled(static_cast<int>(ErrorCode::cancelled), "Cancelled", {},
                                             method + ": the call was cancelled by its client"));
}

std::exception_ptr error_of(const json_rpc::Error& error, const std::string& method) {
    try {
        throw_error(error, method);
    } catch (...) {
        return std::current_exception();
    }
}

Json meta_of(const CallOptions& call, const ClientOptions& client) {
    Json meta{{"stream_window", {{"items", client.stream_window.items}, {"bytes", client.stream_window.bytes}}}};
    if (call.timeout) meta["timeout_ms"] = std::clamp<std::int64_t>(call.timeout->count(), 1, 86'400'000);
    return meta;
}

/// The call, and the thread that reads its socket, unless one that waits for an item does. The ends of its streams keep
/// it.
class Streaming final : public detail::CallerStreams, public std::enable_shared_from_this<Streaming> {
public:
    Streaming(std::shared_ptr<StreamLine> line, std::shared_ptr<Session> session)
        : line_(std::move(line)), session_(std::move(session)) {}
    Streaming(const Streaming&) = delete;
    Streaming& operator=(const Streaming&) = delete;
    ~Streaming() override {
        cancel();
        line_->socket->abort();
        thread_ = {};
        for (const CallerFlow& flow : flows()) {
            if (flow.in != nullptr) give_up(flow.in->close(false), *line_->core);
        }
        const auto unread = line_->state.with(
            [](StreamState& now) { return now.outcome ? std::move(now.outcome->result) : streams::Item{}; });
        give_up(unread, *line_->core);
    }

    /// Sends the request and waits for the server to be ready. Throws what it answered instead.
    void open(const Outgoing& request, SteadyTime deadline);

    std::shared_ptr<detail::ItemSource> source(std::string_view name) override {
        line_->check_process();
        const CallerFlow flow = give(name, false);
        return make_source(line_, flow, shared_from_this());
    }
    std::shared_ptr<detail::ItemSink> sink(std::string_view name) override {
        line_->check_process();
        const CallerFlow flow = give(name, true);
        return make_sink(line_, flow, shared_from_this());
    }
    void result(detail::ResultSlot& slot) override;
    void cancel() noexcept override;

private:
    CallerFlow give(std::string_view name, bool written);
    void run();
    void receive(const http::WebSocketMessage& message);
    void hear(streams::Word word, streams::Item item);
    void become_ready(const streams::Word& word);
    void take_answer(json_rpc::Response answer, streams::Item item);
    void finish(StreamOutcome outcome, bool then_read);
    void break_off(const std::string& why);
    std::vector<CallerFlow> flows() const;
    std::optional<CallerFlow> flow_of(std::string_view name);

    const std::shared_ptr<StreamLine> line_;
    const std::shared_ptr<Session> session_;
    Guarded<std::vector<CallerFlow>> flows_;  ///< known when it is ready; only `given` changes then
    std::shared_ptr<const void> end_of_client_;
    streams::LastItem last_item_;  ///< of whichever thread reads
    std::jthread thread_;          // last: it uses all of the above
};

void Streaming::open(const Outgoing& request, SteadyTime deadline) {
    thread_ = std::jthread([this] { run(); });
    end_of_client_ = line_->core->on_shutdown([weak = std::weak_ptr(line_)] {
        if (const auto line = weak.lock()) line->socket->abort();
    });
    line_->socket->send(request.content_type() == codec::kFrameContentType, request.body());
    const auto answered = [](const StreamState& now) { return now.ready || now.outcome; };
    if (!line_->state.lock().wait_until(deadline, answered)) throw_late(line_->method, line_->core->url());
    request.answered();
    if (!line_->state.with([](const StreamState& now) { return now.ready; })) line_->check();
}

std::vector<CallerFlow> Streaming::flows() const {
    return flows_.with([](const auto& flows) { return flows; });
}

std::optional<CallerFlow> Streaming::flow_of(std::string_view name) {
    return flows_.with([&](const auto& all) -> std::optional<CallerFlow> {
        for (const CallerFlow& flow : all) {
            if (flow.info.name == name) return flow;
        }
        return std::nullopt;
    });
}

/// The stream of that name, or the only one of that direction.
CallerFlow Streaming::give(std::string_view name, bool written) {
    std::string known;
    std::vector<CallerFlow*> fitting;
    return flows_.with([&](std::vector<CallerFlow>& all) {
        for (CallerFlow& flow : all) {
            if (flow.info.reads != written) continue;
            known.append(known.empty() ? "" : ", ").append(flow.info.name);
            if (name.empty() || flow.info.name == name) fitting.push_back(&flow);
        }
        const auto refuse = [&](const std::string& why) {
            throw std::invalid_argument(line_->method + (written ? ": no Writer" : ": no Reader") +
                                        " can be had: " + why);
        };
        if (fitting.empty())
            refuse("the function " + std::string(written ? "reads" : "writes") + " " +
                   (known.empty() ? "no stream" : known));
        if (fitting.size() > 1) refuse("name one of " + known);
        if (std::exchange(fitting.front()->given, true)) refuse(fitting.front()->info.name + " was given already");
        return *fitting.front();
    });
}

void Streaming::run() {
    http::WebSocketEnd end;
    try {
        end = line_->socket->run([this](const http::WebSocketMessage& message) { receive(message); });
    } catch (const std::exception& error) {
        end.reason = error.what();
    }
    const bool down = line_->core->is_shut_down();
    if (!down && end.code == http::CloseCode::going_away) {  // its last words may have been left unsaid
        return finish(
            {{},
             std::make_exception_ptr(ShuttingDown(static_cast<int>(ErrorCode::shutting_down), "Shutting down", {},
                                                  line_->method + ": " + line_->core->url() + ": " + end.reason))},
            true);
    }
    const std::string why =
        down ? "the client was shut down"
             : "the connection broke" + (end.reason.empty() ? std::string() : " (" + end.reason + ")");
    finish({{},
            std::make_exception_ptr(TransportFailure(
                line_->method + ": " + line_->core->url() + ": " + why + " before the call was over", true))},
           true);
}

void Streaming::receive(const http::WebSocketMessage& message) {
    codec::Frame frame{message.text(), {}};
    if (message.binary) {
        const auto split = codec::split_frame(message.bytes->bytes());
        if (!split) return break_off("a binary message is no frame");
        frame = *split;
    }
    if (const streams::Word* const known = last_item_.find(frame.json))
        return hear(*known, {{}, frame.tensors, message.bytes, message.bytes->size()});
    const auto limits = limits_of(message.bytes->size());
    auto json = json_rpc::parse_json(frame.json, limits.json);
    if (const auto* error = std::get_if<json_rpc::JsonTextError>(&json)) return break_off(error->detail);
    auto& value = std::get<Json>(json);
    streams::Item item{{}, frame.tensors, message.bytes, message.bytes->size()};
    if (!value.is_object() || !value.contains("method")) {
        auto answers = json_rpc::parse_response_value(std::move(value), limits);
        if (const auto* fault = std::get_if<std::string>(&answers)) return break_off(*fault);
        return take_answer(std::move(std::get<std::vector<json_rpc::Response>>(answers).front()), std::move(item));
    }
    auto parsed = json_rpc::parse_value(std::move(value), limits);
    auto* requests = std::get_if<json_rpc::Message>(&parsed);
    auto* request = requests == nullptr ? nullptr : std::get_if<json_rpc::Request>(&requests->items.front());
    if (request == nullptr) return break_off("a message is neither an answer nor a notification");
    if (!streams::is_word(request->method)) return;  // of a later version of the protocol
    auto word = streams::read_word(std::move(*request));
    if (const auto* fault = std::get_if<std::string>(&word)) return break_off(*fault);
    last_item_.keep(frame.json, std::get<streams::Word>(word));
    hear(std::move(std::get<streams::Word>(word)), std::move(item));
}

void Streaming::break_off(const std::string& why) {
    line_->socket->close(http::CloseCode::policy_violation, why);
    finish({{},
            std::make_exception_ptr(ProtocolFailure(
                line_->method + ": " + line_->core->url() + " does not keep to the protocol: " + why, true))},
           true);
}

void Streaming::hear(streams::Word word, streams::Item item) {
    using Kind = streams::Word::Kind;
    if (word.call != line_->id) return;
    if (word.kind == Kind::ready) {
        const bool again = line_->state.with([](const StreamState& now) { return now.ready; });
        return again ? break_off("it says twice that it is ready") : become_ready(word);
    }
    const std::optional<CallerFlow> found = flow_of(word.stream);
    const bool about_reading = word.kind == Kind::item || word.kind == Kind::end;
    if (!found || found->info.reads == about_reading || word.kind == Kind::cancel)
        return break_off("it speaks of a stream that there is not");
    item.value = std::move(word.value);
    item.cost += word.elsewhere_bytes;
    const auto leases = word.kind == Kind::item ? leases_in(item) : std::vector<std::string>();
    if (!leases.empty()) line_->core->ports().confirm(leases);  // it may be long until it is read
    if (word.kind == Kind::item) {
        const streams::Item unread{item.value};
        const auto added = found->in->add(std::move(item));
        if (added == streams::Inflow::Added::refused) break_off("an item is beyond its window");
        if (added != streams::Inflow::Added::kept) give_up(unread, *line_->core);
    }
    if (word.kind == Kind::end) found->in->end();
    if (word.kind == Kind::taken && !found->taken(word.taken)) break_off("it took more items than there were");
    if (word.kind == Kind::stop) found->out->stop();
}

void Streaming::become_ready(const streams::Word& word) {
    const ClientOptions& options = line_->core->options();
    std::vector<CallerFlow> made;
    for (const streams::StreamInfo& info : word.streams) {
        CallerFlow& flow = made.emplace_back(CallerFlow{info});
        if (info.reads) {
            flow.out = std::make_shared<streams::Outflow>(word.window);
        } else {
            flow.in = std::make_shared<streams::Inflow>(options.stream_window);
        }
    }
    flows_.with([&](auto& known) { known.swap(made); });
    line_->state.with([](StreamState& now) { now.ready = true; });
    line_->state.notify_all();
}

void Streaming::take_answer(json_rpc::Response answer, streams::Item item) {
    if (answer.id != line_->id && !(answer.id.is_null() && answer.error() != nullptr)) return;
    StreamOutcome outcome;
    if (const auto* error = answer.error()) {
        outcome.error = error_of(*error, line_->method);
    } else {
        item.value = std::make_shared<const Json>(*answer.result());
        if (const auto leases = leases_in(item); !leases.empty()) line_->core->ports().confirm(leases);
        outcome.result = std::move(item);
        for (const CallerFlow& flow : flows())
            flow.all_read();
    }
    finish(std::move(outcome), true);
    line_->socket->close(http::CloseCode::normal, "");
}

/// The first outcome stays.
void Streaming::finish(StreamOutcome outcome, bool then_read) {
    const bool first = line_->state.with([&](StreamState& now) {
        if (now.outcome) return false;
        now.outcome = std::move(outcome);
        return true;
    });
    if (!first) return give_up(outcome.result, *line_->core);
    for (const CallerFlow& flow : flows()) {
        if (flow.in != nullptr) give_up(flow.in->close(then_read), *line_->core);
        if (flow.out != nullptr) flow.out->close();
    }
    line_->state.notify_all();
}

void Streaming::result(detail::ResultSlot& slot) {
    line_->check_process();
    std::vector<CallerFlow> unused;
    flows_.with([&](std::vector<CallerFlow>& all) {
        for (CallerFlow& flow : all) {
            if (!std::exchange(flow.given, true)) unused.push_back(flow);
        }
    });
    for (const CallerFlow& flow : unused) {
        if (flow.in != nullptr) give_up(flow.in->close(false), *line_->core);
        line_->say(flow.info.reads ? streams::end(line_->id, flow.info.name)
                                   : streams::stop(line_->id, flow.info.name));
    }
    line_->socket->stop_reading_here();
    line_->state.lock().wait([](const StreamState& now) { return now.outcome.has_value(); });
    line_->check();
    streams::Item item = line_->state.with([](StreamState& now) { return std::exchange(now.outcome->result, {}); });
    if (item.value == nullptr) throw std::logic_error(line_->method + ": its result was read already");
    read_value(std::move(item), *line_, slot);
}

void Streaming::cancel() noexcept {
    if (!line_->is_here()) return;
    try {
        const bool over = line_->state.with([](const StreamState& now) { return now.outcome.has_value(); });
        if (over) return;
        line_->say(streams::cancel(line_->id));
        finish({{}, cancelled(line_->method)}, false);
        line_->socket->close(http::CloseCode::normal, "");
    } catch (const std::exception&) {
        line_->socket->abort();
    }
}

/// The session was the client's own choice, and the server does not know it any more.
bool is_own_session_lost(const RpcError& error, const std::string& shared, const CallOptions& options) {
    if (!options.session.empty() || shared.empty()) return false;
    return is_about_session({error.code(), error.message(), Json::parse(error.data(), nullptr, false)});
}

}  // namespace

std::shared_ptr<detail::CallerStreams> open_stream(const std::shared_ptr<Core>& core, std::shared_ptr<Session> session,
                                                   std::string_view method, const detail::Arguments& arguments,
                                                   const CallOptions& options) {
    core->agree_on_coding(options.timeout);
    const Core::Times times = core->times_of(options);
    const auto attempt = [&]() -> std::shared_ptr<detail::CallerStreams> {
        Outgoing request = core->compose(Outgoing::Form::single, 1, options);
        request.call(method, arguments, meta_of(options, core->options()));
        request.finish();
        const std::string shared = core->session_for(request);
        const auto line = shared_in_its_process(new StreamLine());
        line->core = core;
        line->options = options;
        line->options.timeout.reset();
        line->id = request.first_id();
        line->method = method;
        line->memory = shared;
        line->socket = core->connect_web_socket(method, options, shared, times.deadline);
        const auto call = shared_in_its_process(new Streaming(line, session));
        try {
            call->open(request, times.deadline);
        } catch (const RpcError& error) {
            if (!is_own_session_lost(error, shared, options)) throw;
            core->ports().session_refused(shared);
            throw TransportFailure(core->url() + " does not know this client's memory any more: it was started anew",
                                   false);
        }
        return call;
    };
    return core->counted(times.start, [&] { return core->retried(options, times, attempt); });
}

}  // namespace shared_tensor::client
