#include "server/rpc/rpc_endpoint.hpp"

#include <algorithm>

#include "base/concurrency/at_end.hpp"
#include "base/log/log.hpp"
#include "protocol/codec/frame.hpp"
#include "protocol/json_rpc/message.hpp"
#include "runtime/calls/call_report.hpp"

namespace shared_tensor::server {

using json_rpc::Error;
using json_rpc::Json;
using runtime::make_outcome;

namespace {

/// Appends milliseconds with three decimals.
void append_milliseconds(std::string& text, std::chrono::nanoseconds time) {
    const auto microseconds = std::chrono::round<std::chrono::microseconds>(time).count();
    const std::string digits = std::to_string(1000 + microseconds % 1000);
    text.append(std::to_string(microseconds / 1000)).append(1, '.').append(digits, 1);
}

/// The value of Server-Timing (W3C), in milliseconds.
std::string timing(std::chrono::nanoseconds queue, std::chrono::nanoseconds compute) {
    std::string text;
    text.reserve(48);
    text += "queue;dur=";
    append_milliseconds(text, queue);
    text += ", compute;dur=";
    append_milliseconds(text, compute);
    return text;
}

Error time_is_over() {
    return json_rpc::deadline_exceeded("the call's time is over; ask for more with Request-Timeout");
}

std::variant<codec::Frame, Error> split(const net::Request& request, bool is_frame) {
    if (!is_frame) return codec::Frame{request.text(), {}};
    const auto frame = codec::split_frame(request.body->bytes());
    if (frame) return *frame;
    return json_rpc::parse_error(
        "the body is no frame: 8 bytes little endian N, N bytes of JSON with 8 + N a multiple of 64, tensors");
}

}  // namespace

/// While it lives, this thread works for an item: lines of the log name it, and the tensors that the message's transfer
/// counts are those of the item.
class RpcEndpoint::Work {
public:
    /// `counts`: the line of the item will be written.
    Work(const Message& message, Item& item, bool counts)
        : transfer_(message.transfer), item_(item), call_(item.as_current_call(message.principal)) {
        if (counts) before_ = transfer_.counts();
    }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;
    ~Work() { count_tensors(); }

    /// Adds the tensors that crossed since the last call.
    void count_tensors() {
        if (!before_) return;
        const tensor::TensorTransfer::Counts& now = transfer_.counts();
        for (std::size_t i = 0; i < now.size(); ++i) {
            item_.tensors[i].tensors += now[i].tensors - (*before_)[i].tensors;
            item_.tensors[i].copied += now[i].copied - (*before_)[i].copied;
        }
        before_ = now;
    }

private:
    const tensor::TensorTransfer& transfer_;
    Item& item_;
    std::optional<tensor::TensorTransfer::Counts> before_;
    const CurrentCall call_;
    const InCall in_call_{call_};
};

/// Its time may be over, or its client gone, while this thread is in the function. The thread of the alarms sees to
/// both. Most calls end before it looks at them. Meanwhile this thread does not use the message and the item.
class RpcEndpoint::Guard final : public runtime::CallGuard, private Alarms::Alarm {
public:
    Guard(const RpcEndpoint& endpoint, Message& message, Item& item)
        : endpoint_(endpoint), message_(message), item_(item) {}

    bool can_answer() const override { return message_.client.can_answer_now(); }

    void begin(const std::shared_ptr<runtime::Execution>& execution, SteadyTime deadline, bool brief) override {
        if (!brief) message_.client.about_to_wait();
        execution_ = execution;
        deadline_ = deadline;
        endpoint_.all_->alarms.add(*this, std::min(deadline, real_clock().now() + ClientWatch::kUnwatched));
    }

    void end() override {
        endpoint_.all_->alarms.remove(*this);
        cancels_.reset();
        execution_.reset();
    }

private:
    SteadyTime ring(SteadyTime now) noexcept override try {
        if (now >= deadline_) {
            answer();
            return SteadyTime::max();
        }
        if (!cancels_) {
            message_.client.about_to_wait();
            cancels_.emplace(message_.client.token(), [this] {
                execution_->cancel();
                endpoint_.all_->alarms.ring_now(*this);
            });
        }
        if (message_.client.known_gone()) execution_->own_arguments();
        return deadline_;  // if only the local channel was closed, the client still waits for an answer
    } catch (const std::exception& error) {
        log::error("a call cannot be answered while its function runs: ", error.what());
        return SteadyTime::max();
    }

    void answer() {
        execution_->own_arguments();  // the function may go on
        item_.outcome = make_outcome(time_is_over());
        item_.queue = execution_->queue_time();
        execution_->cancel(item_.outcome);
        const net::Response response = endpoint_.answer_one(message_, item_);
        item_.answered = true;  // not before: without memory for the answer, the thread answers when it comes back
        message_.client.answer_now(response);
    }

    const RpcEndpoint& endpoint_;
    Message& message_;
    Item& item_;
    std::shared_ptr<runtime::Execution> execution_{};
    SteadyTime deadline_{};
    std::optional<std::stop_callback<std::function<void()>>> cancels_{};
};

RpcEndpoint::Target RpcEndpoint::find(std::string_view method) const {
    if (const Builtins::Method* builtin = builtins_->find(method)) return {builtin, nullptr};
    return {nullptr, all_->dispatcher.find(method)};
}

std::variant<json_rpc::Message, json_rpc::Response> RpcEndpoint::parse(std::string_view json) const {
    if (json.size() <= all_->options.requests.json.max_bytes) {
        auto parsed = json_rpc::parse(json, all_->options.requests);
        if (const auto* rejected = std::get_if<json_rpc::Response>(&parsed))
            all_->rejections.count_code(rejected->error()->code);
        return parsed;
    }
    all_->rejections.count(RejectedFor::too_large);
    return json_rpc::Response{nullptr, json_rpc::parse_error("the JSON is longer than " +
                                                             std::to_string(all_->options.requests.json.max_bytes) +
                                                             " bytes: send tensors as application/vnd.shared-tensor")};
}

net::Response RpcEndpoint::answer(const net::Request& request, bool is_frame, const Principal& principal,
                                  net::ResponseStream& response_stream) const {
    const auto frame = split(request, is_frame);
    if (const auto* error = std::get_if<Error>(&frame)) return reject(nullptr, *error);
    const auto& [json, tensors] = std::get<codec::Frame>(frame);
    auto parsed = parse(json);
    if (const auto* rejected = std::get_if<json_rpc::Response>(&parsed))
        return error_reply(rejected->id, *rejected->error());
    Received received{std::move(std::get<json_rpc::Message>(parsed)), {tensors, request.body}};
    const CallDefaults defaults = read_headers(request.head.headers);
    const json_rpc::Request* only = only_request(received.message);
    if (only != nullptr) received.target = find(only->method);
    if (only == nullptr || !received.target->streams() || !accepts_events(request.head.headers))
        return answer(std::move(received), defaults, principal, response_stream);
    try {
        answer_by_events(*all_, *only, received.target->function, std::move(received.tensors), defaults, principal,
                         response_stream);
        return {};
    } catch (const Rejected& rejected) {
        received.target->stats()->count(rejected.error.code);
        log_rejected(*all_, *only, defaults, principal, rejected.error.code);
        return error_reply(only->id.value_or(nullptr), rejected.error);
    }
}

/// Rejects a whole message.
net::Response RpcEndpoint::reject(const Json& id, const Error& error) const {
    all_->rejections.count_code(error.code);
    return error_reply(id, error);
}

net::Response RpcEndpoint::answer(Received received, const CallDefaults& defaults, const Principal& principal,
                                  net::ResponseStream& response_stream) const {
    if (const auto* error = std::get_if<Error>(&defaults)) {
        const auto* only = only_request(received.message);
        return reject(only != nullptr ? only->id.value_or(nullptr) : nullptr, *error);
    }
    const SteadyTime now = real_clock().now();
    received.tensors.hold = all_->holder(principal);
    Message message{principal,
                    ClientWatch(response_stream),
                    tensor::TensorTransfer(std::move(received.tensors)),
                    MessageReferences(*all_, principal),
                    now,
                    now + all_->options.max_wait};
    return answer_items(message, std::move(received), std::get<CallMeta>(defaults));
}

net::Response RpcEndpoint::answer_items(Message& message, Received received, const CallMeta& defaults) const {
    json_rpc::Message& parsed = received.message;
    if (parsed.items.size() > 1 && message.principal.use != nullptr)
        message.principal.use->requests.charge(parsed.items.size() - 1);
    if (parsed.is_batch && !defaults.idempotency_key.empty()) {
        return reject(
            nullptr, json_rpc::invalid_request("an Idempotency-Key header on a batch: give each item its own in meta"));
    }
    std::vector<Item> items;
    items.reserve(parsed.items.size());
    for (auto& entry : parsed.items) {
        Item& item = items.emplace_back();
        if (auto* rejected = std::get_if<json_rpc::Response>(&entry)) {
            item.request.id = rejected->id;
            item.outcome = make_outcome(*rejected->error());
        } else {
            item.request = std::move(std::get<json_rpc::Request>(entry));
        }
    }
    net::Response response;
    message.is_batch = parsed.is_batch;
    if (parsed.is_batch) {
        start_all(message, items, defaults);
        response = answer_batch(message, items);
    } else {
        items.front().target = std::move(received.target);
        if (items.front().outcome == nullptr) start(message, items.front(), defaults);
        if (!items.front().answered) response = answer_one(message, items.front());
    }
    all_->transports.add(message.transfer);
    return response;
}

void RpcEndpoint::start(Message& message, Item& item, const CallMeta& defaults) const try {
    if (!message.principal.may_call(item.request.method))
        throw Rejected(json_rpc::not_authorised(reason_against(item.request.method)));
    item.id_as_text = id_text(item.request.id);
    item.to = find_context(*all_, message.principal, defaults, item.request.meta);
    const Work work(message, item, all_->reporting.any());
    if (item.to.client != nullptr) message.client.watch_process(item.to.client->end());
    message.transfer.set_transports(item.to.transports());
    message.transfer.set_borrow(false);
    if (!item.target) item.target = find(item.request.method);
    const Builtins::Method* const builtin = item.builtin();
    const bool takes_long =
        builtin != nullptr ? builtin->takes != Builtins::Takes::no_time : !item.request.is_notification();
    if (takes_long && !message.client.may_take_long()) throw Rejected(no_thread());
    if (builtin != nullptr && builtin->takes == Builtins::Takes::a_wait && item.request.is_notification())
        item.outcome = make_outcome(codec::Value());  // nobody gets its answer
    if (builtin != nullptr) return;
    // Checked before the call runs: a client that gets -32001 may call again.
    if (const std::string reason = item.to.busy(); !reason.empty())
        throw Rejected(json_rpc::busy(std::chrono::seconds(1), reason));
    start_call(message, item);
} catch (const Rejected& rejected) {
    item.outcome = make_outcome(rejected.error);
    if (!item.to.meta.request_id.empty()) return;
    item.to.meta.request_id = defaults.request_id;
    item.to.meta.traceparent = defaults.traceparent;
    begin_span(*all_, item.to.meta);
}

/// Whether the function may read the caller's device memory in place: only if the call does not outlive its request,
/// and no other caller gets its result.
bool RpcEndpoint::may_borrow(const FunctionOptions& options, const Item& item) {
    return options.borrows && !options.cached && item.to.meta.idempotency_key.empty() &&
           !item.request.is_notification();
}

void RpcEndpoint::start_call(Message& message, Item& item) const {
    const auto& function = item.target->function;
    message.transfer.set_borrow(function != nullptr && may_borrow(function->shared->options(), item));
    auto timeout = item.to.meta.timeout;
    if (timeout && !item.inputs.empty()) {  // the time for which it waited for them counts
        *timeout -= std::chrono::duration_cast<std::chrono::milliseconds>(real_clock().now() - message.begun);
        timeout = std::max(*timeout, std::chrono::milliseconds(0));
    }
    // The calls of a batch run at the same time, so on other threads.
    const bool may_run_here = !message.is_batch && !item.request.is_notification();
    Guard guard(*this, message, item);
    // In a worker process each call runs on this thread: the server in front has a queue and deadlines.
    const bool runs_here = all_->options.named_callers && may_run_here;
    auto started = all_->dispatcher.call({item.request.method,
                                          item.request.params,
                                          {message.principal.name,
                                           item.to.state_session,
                                           {},
                                           item.id_as_text,
                                           item.to.meta.request_id,
                                           item.to.meta.traceparent,
                                           item.to.meta.parent_span},
                                          timeout,
                                          item.to.meta.idempotency_key,
                                          message.transfer,
                                          &message.references,
                                          item.to.memory,
                                          {},
                                          item.request.is_notification(),
                                          function,
                                          may_run_here ? &guard : nullptr,
                                          runs_here});
    if (auto* error = std::get_if<Error>(&started)) {
        item.outcome = make_outcome(std::move(*error));
        return;
    }
    auto& call = std::get<runtime::StartedCall>(started);
    if (item.request.is_notification()) {
        const auto count = [this, function, run = call.waiter->execution().get()](const auto& outcome) {
            function->run_time->calls.count(outcome->code());
            runtime::report_run(*run, outcome->code(), all_->reporting);
        };
        if (function != nullptr) call.waiter->execution()->observe({{}, {}, count});
        return all_->dispatcher.detach(std::move(call));
    }
    item.waiter = std::move(call.waiter);
    item.deadline = call.deadline;
}

runtime::OutcomePointer RpcEndpoint::run_builtin(Message& message, Item& item, const Builtins::Method& method) const {
    message.transfer.set_transports(item.to.transports());
    if (method.takes == Builtins::Takes::a_wait) message.client.about_to_wait();
    try {
        return method.run({item.request.params, item.to, message.principal, message.client, message.transfer,
                           message.wait_end, message.references});
    } catch (const Rejected& rejected) {
        return make_outcome(rejected.error);
    } catch (const std::bad_alloc&) {
        return make_outcome(json_rpc::out_of_memory("the method needed more memory than there is"));
    } catch (const std::exception& error) {
        log::error("the method failed: ", error.what());
        return make_outcome(json_rpc::internal_error());
    }
}

void RpcEndpoint::finish(Message& message, Item& item) const {
    if (item.outcome) return;
    const Work work(message, item, all_->reporting.any());
    if (const Builtins::Method* builtin = item.builtin()) {
        item.outcome = run_builtin(message, item, *builtin);
        return;
    }
    if (item.waiter == nullptr) return;  // a notification, which needs no answer
    item.outcome = message.client.wait(*item.waiter, item.deadline);
    const std::shared_ptr<runtime::Execution> execution = item.waiter->execution();
    item.waiter.reset();
    item.queue = execution->queue_time();
    item.compute = execution->compute_time();
    // A run on this thread was ended by its deadline.
    if (item.outcome && !message.is_batch && item.outcome->code() == static_cast<int>(ErrorCode::cancelled) &&
        real_clock().now() >= item.deadline) {
        item.outcome = nullptr;
    }
    if (item.outcome) {
        message.transfer.count_copied(execution->take_copied());
    } else {
        execution->own_arguments();  // the function may go on after the caller was answered
        message.transfer.count_copied(execution->take_copied());
        // If only the local channel was closed, the client still reads this answer.
        item.outcome =
            make_outcome(message.client.known_gone() ? json_rpc::cancelled("the client's local channel was closed")
                                                     : time_is_over());
    }
}

void RpcEndpoint::print(Message& message, Item& item, json_rpc::LongText& json) const {
    Work work(message, item, all_->reporting.any());
    message.transfer.set_policy(item.to.meta.policy);
    message.transfer.set_transports(item.to.transports());
    IssuedHandles issued(*all_, message.principal, item.to);
    int code = static_cast<int>(ErrorCode::response_too_large);  // if the batch has no room for it
    const SteadyTime begun = real_clock().now();
    const AtEnd counted([&] {
        work.count_tensors();
        note_answered(message, item, code);
        runtime::CallStats* const stats = item.stats();
        if (stats == nullptr) return;
        const SteadyTime now = real_clock().now();
        stats->serialise.record(now - begun);
        stats->answer.record(now - message.begun);
    });
    code =
        print_outcome(item.id(), *item.outcome, message.transfer, issued, item.to.memory, all_->options.replies, json);
}

/// Reports a request that was answered, or a notification that did not run. Counts it for its function or method, or
/// else among the rejections.
void RpcEndpoint::note_answered(const Message& message, Item& item, int code) const {
    if (all_->reporting.any()) {
        runtime::report_call(item.as_current_call(message.principal),
                             {code, item.queue, item.compute, real_clock().now() - message.begun, &item.tensors},
                             all_->reporting);
    }
    if (!item.target) item.target = find(item.request.method);
    if (runtime::CallStats* const stats = item.stats()) return stats->count(code);
    all_->rejections.count_code(code);
}

net::Response RpcEndpoint::answer_one(Message& message, Item& item) const {
    finish(message, item);
    if (item.request.is_notification()) {
        if (item.outcome != nullptr) note_answered(message, item, item.outcome->code());
        net::Response nothing;
        nothing.status = 204;
        return nothing;
    }
    ReplyText json(*all_, message.principal, &message.client);
    print(message, item, json);
    net::Response response = finish_reply(std::move(json), message.transfer);
    if (item.outcome->failed()) set_status(response, *item.outcome->error());
    if (item.compute.count() > 0) response.headers.add("Server-Timing", timing(item.queue, item.compute));
    return response;
}

net::Response RpcEndpoint::answer_batch(Message& message, std::vector<Item>& items) const {
    ReplyText json(*all_, message.principal, &message.client);
    json_rpc::BatchWriter writer(json);
    for (const Item& item : items) {
        if (!item.request.is_notification()) writer.expect(item.id());
    }
    for (Item& item : items) {
        finish(message, item);
        if (item.request.is_notification() && item.outcome != nullptr)
            note_answered(message, item, item.outcome->code());
        if (item.request.is_notification()) continue;
        writer.add(item.id(), [&](json_rpc::LongText& out) { print(message, item, out); });
    }
    writer.finish();
    if (json.size() > 0) return finish_reply(std::move(json), message.transfer);
    net::Response nothing;
    nothing.status = 204;
    return nothing;
}

}  // namespace shared_tensor::server
