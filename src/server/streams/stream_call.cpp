#include "server/streams/stream_call.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <typeinfo>
#include <utility>

#include <shared_tensor/detail/failure.hpp>

#include "base/bytes/check.hpp"
#include "base/log/log.hpp"
#include "protocol/codec/json_source.hpp"
#include "runtime/calls/call_report.hpp"

namespace shared_tensor::server {

using json_rpc::Error;
using json_rpc::Json;

namespace {

/// Whether the message refers to tensors whose bytes it does not contain.
bool names_memory(const tensor::TensorTransfer& transfer) {
    using tensor::TransportKind;
    for (std::size_t i = 0; i < tensor::kTransportKinds.size(); ++i) {
        const TransportKind transport = tensor::kTransportKinds[i];
        const bool in_message =
            transport == TransportKind::data || transport == TransportKind::base64 || transport == TransportKind::body;
        if (!in_message && transfer.counts()[i].tensors > 0) return true;
    }
    return false;
}

/// For events: the client's connection slows the function down.
constexpr streams::Window kNoWindow{streams::Window::kUnbounded, streams::Window::kUnbounded};

/// Limits the window of a client, because items that the client does not read stay in the server's memory.
streams::Window bounded(streams::Window wanted) {
    constexpr std::size_t kMostItems = 65'536, kMostBytes = std::size_t{64} << 20;
    return {std::min(wanted.items, kMostItems), std::min(wanted.bytes, kMostBytes)};
}

/// Leaves out the transport `body`: events are text, so no tensors can follow them as bytes.
void leave_out_bodies(tensor::ExportPolicy& policy) {
    std::erase(policy.accept, tensor::TransportKind::body);
    if (std::erase(policy.require, tensor::TransportKind::body) > 0 && policy.require.empty())
        throw Rejected(
            json_rpc::transport_not_possible({{"body", "events are text: call it over a WebSocket (GET /ws)"}}));
}

}  // namespace

std::shared_ptr<StreamCall> StreamCall::make(Services& all, const json_rpc::Request& request, const Function& function,
                                             const CallDefaults& defaults, const Principal& principal,
                                             std::shared_ptr<MessageOut> out) {
    if (const auto* error = std::get_if<Error>(&defaults)) throw Rejected(*error);
    if (!principal.may_call(request.method)) throw Rejected(json_rpc::not_authorised(reason_against(request.method)));
    ReplyContext to = find_context(all, principal, std::get<CallMeta>(defaults), request.meta);
    const bool events = out->socket() == nullptr;
    const streams::Window client_window = events ? kNoWindow : bounded(to.meta.stream_window);
    if (events) leave_out_bodies(to.meta.policy);
    return std::shared_ptr<StreamCall>(new StreamCall(all, request.id.value_or(nullptr), function, principal,
                                                      std::move(to), std::move(out), client_window));
}

runtime::StreamRun StreamCall::open(const json_rpc::Request& request, tensor::Incoming tensors) {
    if (principal_.use != nullptr) {
        auto place = principal_.use->streams.take(1);
        if (!place) {
            throw Rejected(
                json_rpc::busy(std::chrono::seconds(1),
                               "this client has as many calls with streams as one client may have: end some, "
                               "or raise --max-streams"));
        }
        place_ = std::move(*place);
    }
    tensors.hold = all_.holder(principal_);
    tensor::TensorTransfer arguments(std::move(tensors));
    arguments.set_transports(to_.transports());
    MessageReferences references(all_, principal_);
    const runtime::CallOwner owner{principal_.name,     to_.state_session,   {},
                                   id_text(request.id), to_.meta.request_id, to_.meta.traceparent,
                                   to_.meta.parent_span};
    auto opened = all_.dispatcher.open_stream({request.method,
                                               request.params,
                                               owner,
                                               to_.meta.timeout,
                                               {},
                                               arguments,
                                               &references,
                                               to_.memory,
                                               lent_,
                                               false,
                                               function_},
                                              shared_from_this(), [call = shared_from_this()] { call->cancelled(); });
    count_tensors(arguments);
    if (auto* error = std::get_if<Error>(&opened)) throw Rejected(std::move(*error));
    return std::move(std::get<runtime::StreamRun>(opened));
}

StreamCall::StreamCall(Services& all, Json id, Function function, Principal principal, ReplyContext reply_context,
                       std::shared_ptr<MessageOut> out, streams::Window client_window)
    : all_(all),
      id_(std::move(id)),
      function_(std::move(function)),
      principal_(std::move(principal)),
      to_(std::move(reply_context)),
      out_(std::move(out)) {
    const auto parameters = function_->shared->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].flow == Flow::value) continue;
        const bool reads = parameters[i].flow == Flow::reader;
        parameters_.push_back(i);
        flows_.push_back(streams::Flow::make({parameters[i].name, reads}, reads, window_, client_window));
    }
}

const streams::Flow& StreamCall::at(std::size_t parameter) const {
    const auto found = std::find(parameters_.begin(), parameters_.end(), parameter);
    SHARED_TENSOR_CHECK(found != parameters_.end(), "a parameter that is no stream");
    return flows_[static_cast<std::size_t>(found - parameters_.begin())];
}

std::shared_ptr<detail::ItemSource> StreamCall::source(std::size_t parameter) {
    return std::make_shared<streams::Source>(shared_from_this(), at(parameter));
}

std::shared_ptr<detail::ItemSink> StreamCall::sink(std::size_t parameter) {
    return std::make_shared<streams::Sink>(shared_from_this(), at(parameter));
}

std::vector<streams::StreamInfo> StreamCall::infos() const {
    std::vector<streams::StreamInfo> infos;
    for (const streams::Flow& flow : flows_)
        infos.push_back(flow.info);
    return infos;
}

std::string StreamCall::take(const streams::StreamMessage& message, streams::Item item) {
    const streams::Flow* flow = streams::find(flows_, message.stream);
    if (flow == nullptr) return "the call has no stream \"" + message.stream + '"';
    return std::string(streams::hear(*flow, message, std::move(item)).rejection);
}

void StreamCall::read(const streams::Flow& flow, streams::Item item, const Read& read) {
    tensor::Incoming tensors{item.tensors, item.owner};
    tensors.hold = all_.holder(principal_);
    tensor::TensorTransfer transfer(std::move(tensors));
    transfer.set_transports(to_.transports());
    MessageReferences references(all_, principal_);
    const FunctionOptions& options = function_->shared->options();
    const codec::JsonSource source(transfer, &references, Placement{options.device, options.dtype});
    try {
        read(ValueReader(source, codec::JsonSource::node(*item.value)));
        lent_->add(transfer.take_lent());
        // A call takes its places at objects before it begins, so an item must not bring an object.
        if (!source.uses().empty()) throw InvalidValue({}, "a value: objects are passed as arguments", "handle");
    } catch (const InvalidValue& error) {
        throw BadItem(streams::place_of(flow, item.number, error.path), error.expected, error.got);
    }
    count_tensors(transfer);
}

void StreamCall::send(const streams::Flow& flow, std::string text_before, const Write& write) {
    tensor::TensorTransfer transfer({}, to_.meta.policy, {}, to_.transports());
    IssuedHandles issued(all_, principal_, to_);
    ReplyText json(all_, principal_);
    std::uint64_t elsewhere = 0;
    try {
        json += text_before;
        elsewhere = print(write, transfer, issued, json);
    } catch (...) {
        issued.take_back();
        note_unsent();
        throw;
    }
    flow.out->sent(streams::message_bytes(json.size(), transfer.body().size()) + elsewhere);
    count_tensors(transfer);
    if (out_->send(std::move(json), transfer.body())) return;
    issued.take_back();
    throw CancelledError();
}

/// Prints an item. Returns the bytes of its tensors that are not in the message.
std::uint64_t StreamCall::print(const Write& write, tensor::TensorTransfer& transfer, IssuedHandles& issued,
                                ReplyText& json) const {
    json.set_limit(all_.options.replies.max_json_bytes);
    const codec::Value value = streams::print_item(
        write, transfer, codec::JsonSink::References::reject,
        [&](const ObjectPointer& object) { return issued.describe(object); }, json);
    if (to_.memory.failed()) throw std::runtime_error("shared memory of the caller failed: the item is not sent");
    const std::uint64_t elsewhere =
        names_memory(transfer) ? streams::bytes_elsewhere(value, transfer.body().size()) : 0;
    json += streams::item_end(elsewhere);
    return elsewhere;
}

/// Keeps for the answer why an item could not be sent, unless the function itself threw. Call it in a catch block.
void StreamCall::note_unsent() {
    try {
        throw;
    } catch (const std::exception& thrown) {
        if (auto error = unprintable(all_.options.replies.max_json_bytes))
            unsent_.with([&](auto& held) {
                held = Unsent{detail::demangled(typeid(thrown).name()), std::move(*error)};
            });
    } catch (...) {
    }
}

/// Returns the error for the caller. If an item could not be sent and the function did not catch that, this is the
/// reason why.
json_rpc::Error StreamCall::explained(const json_rpc::Error& error) const {
    const auto unsent = unsent_.with([](const auto& held) { return held; });
    const bool its_own = unsent && error.is(json_rpc::ErrorCode::function_failed) && error.data.is_object() &&
                         error.data.value("type", "") == unsent->type;
    return its_own ? unsent->error : error;
}

void StreamCall::cancelled() {
    for (const streams::Flow& flow : flows_)
        flow.close(false);
}

void StreamCall::count_tensors(const tensor::TensorTransfer& transfer) {
    all_.transports.add(transfer);
    tensors_.with([&](auto& counts) {
        for (std::size_t i = 0; i < counts.size(); ++i) {
            counts[i].tensors += transfer.counts()[i].tensors;
            counts[i].copied += transfer.counts()[i].copied;
        }
    });
}

/// The times of the run are known only after its outcome, with which finish() is called: so all of the time counts as
/// its run.
void StreamCall::log(int code) const {
    const std::string id = id_text(id_);
    const auto counts = tensors_.with([](const auto& held) { return held; });
    const auto total = real_clock().now() - begun_;
    const CallMeta& meta = to_.meta;
    runtime::report_call(
        {function_->shared->name(), principal_.name, meta.request_id, id, {}, meta.traceparent, meta.parent_span},
        {code, {}, total, total, &counts}, all_.reporting);
}

void StreamCall::finish(const runtime::CallOutcome& outcome) {
    cancelled();  // for Readers and Writers that the function left behind
    tensor::TensorTransfer transfer({}, to_.meta.policy, {}, to_.transports());
    IssuedHandles issued(all_, principal_, to_);
    ReplyText json(all_, principal_);
    const auto failed = outcome.failed() ? runtime::make_outcome(explained(*outcome.error())) : nullptr;
    const int code = print_outcome(id_, failed != nullptr ? *failed : outcome, transfer, issued, to_.memory,
                                   all_.options.replies, json);
    function_->run_time->calls.count(code);
    count_tensors(transfer);
    log(code);
    if (!out_->answer(std::move(json), transfer)) issued.take_back();
}

void log_rejected(const Services& all, const json_rpc::Request& request, const CallDefaults& defaults,
                  const Principal& principal, int code) {
    const std::string id = id_text(request.id);
    CallMeta meta;
    if (const auto* const known = std::get_if<CallMeta>(&defaults)) meta = *known;
    begin_span(all, meta);
    runtime::report_call({request.method, principal.name, meta.request_id, id, {}, meta.traceparent, meta.parent_span},
                         {code}, all.reporting);
}

void cancel_run(runtime::Execution& execution) noexcept {
    try {
        execution.cancel();
    } catch (const std::exception& error) {  // no memory
        log::error("a call goes on without its client: ", error.what());
    }
}

}  // namespace shared_tensor::server
