#include "server/streams/stream_call.hpp"

#include <algorithm>
#include <stdexcept>
#include <typeinfo>
#include <utility>

#include <shared_tensor/detail/failure.hpp>

#include "base/bytes/check.hpp"
#include "protocol/codec/json_source.hpp"

namespace shared_tensor::server {

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

}  // namespace

StreamCall::StreamCall(Setup setup, streams::Window client_window) : setup_(std::move(setup)) {
    const auto parameters = setup_.function->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].flow == Flow::value) continue;
        const bool reads = parameters[i].flow == Flow::reader;
        parameters_.push_back(i);
        flows_.push_back(streams::Flow::make({parameters[i].name, reads}, reads, setup_.window, client_window));
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
    tensors.hold = setup_.values.holder(principal());
    tensor::TensorTransfer transfer(std::move(tensors));
    transfer.set_transports(setup_.reply_context.transports());
    MessageReferences references(setup_.values, principal());
    const FunctionOptions& options = setup_.function->options();
    const codec::JsonSource source(transfer, &references, Placement{options.device, options.dtype});
    try {
        read(ValueReader(source, codec::JsonSource::node(*item.value)));
        lent_->add(transfer.take_lent());
        // A call takes its places at objects before it begins, so an item must not bring an object.
        if (!source.uses().empty()) throw InvalidValue({}, "a value: objects are passed as arguments", "handle");
    } catch (const InvalidValue& error) {
        throw BadItem(streams::place_of(flow, item.number, error.path), error.expected, error.got);
    }
    setup_.transports.add(transfer);
}

void StreamCall::send(const streams::Flow& flow, std::string text_before, const Write& write) {
    const ReplyContext& to = setup_.reply_context;
    tensor::TensorTransfer transfer({}, to.meta.policy, {}, to.transports());
    IssuedHandles issued = setup_.reply_contexts.issued(principal(), to);
    ReplyText json(setup_.values, principal());
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
    setup_.transports.add(transfer);
    if (setup_.out->send(std::move(json), transfer.body())) return;
    issued.take_back();
    throw CancelledError();
}

/// Prints an item. Returns the bytes of its tensors that are not in the message.
std::uint64_t StreamCall::print(const Write& write, tensor::TensorTransfer& transfer, IssuedHandles& issued,
                                ReplyText& json) const {
    json.set_limit(setup_.max_item_json);
    const codec::Value value = streams::print_item(
        write, transfer, codec::JsonSink::References::reject,
        [&](const ObjectPointer& object) { return issued.describe(object); }, json);
    if (reply_context().memory.failed())
        throw std::runtime_error("shared memory of the caller failed: the item is not sent");
    const std::uint64_t elsewhere =
        names_memory(transfer) ? streams::bytes_elsewhere(value, transfer.body().size()) : 0;
    json += streams::item_end(elsewhere);
    return elsewhere;
}

/// Keeps for the answer why an item could not be sent. Call it in a catch block.
void StreamCall::note_unsent() {
    const auto note = [this](const std::exception& thrown, json_rpc::Error error) {
        unsent_.with([&](auto& held) { held = Unsent{detail::demangled(typeid(thrown).name()), std::move(error)}; });
    };
    try {
        throw;
    } catch (const tensor::TransportNotPossible& error) {
        note(error, json_rpc::transport_not_possible(error.reasons_json()));
    } catch (const json_rpc::TextTooLong& error) {
        note(error, too_long(setup_.max_item_json));
    } catch (const tensor::TooManyElements& error) {
        note(error, too_many_elements(error));
    } catch (const TooManyHandles& error) {
        note(error, json_rpc::out_of_memory(error.what()));
    } catch (...) {  // thrown by the function itself
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

void StreamCall::finish(const runtime::CallOutcome& outcome, const ReplyLimits& limits) {
    cancelled();  // for Readers and Writers that the function left behind
    const ReplyContext& to = setup_.reply_context;
    tensor::TensorTransfer transfer({}, to.meta.policy, {}, to.transports());
    IssuedHandles issued = setup_.reply_contexts.issued(principal(), to);
    ReplyText json(setup_.values, principal());
    const auto failed = outcome.failed() ? runtime::make_outcome(explained(*outcome.error())) : nullptr;
    print_outcome(id(), failed != nullptr ? *failed : outcome, transfer, issued, to.memory, limits, json);
    setup_.transports.add(transfer);
    if (!setup_.out->answer(std::move(json), transfer)) issued.take_back();
}

}  // namespace shared_tensor::server
