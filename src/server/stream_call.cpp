#include "server/stream_call.hpp"

#include <algorithm>
#include <stdexcept>
#include <typeinfo>
#include <utility>

#include <shared_tensor/detail/failure.hpp>

#include "codec/json_sink.hpp"
#include "codec/json_source.hpp"
#include "util/check.hpp"

namespace shared_tensor::server {

namespace {

/// Of tensors that the message names and does not hold.
std::uint64_t bytes_elsewhere(const codec::Value& value, const tensor::TensorExchange& exchange) {
    std::uint64_t elsewhere = 0;
    for (std::size_t i = 0; i < tensor::kWays.size(); ++i) {
        const tensor::Way way = tensor::kWays[i];
        const bool in_message = way == tensor::Way::data || way == tensor::Way::base64 || way == tensor::Way::body;
        if (!in_message) elsewhere += exchange.counts()[i].tensors;
    }
    if (elsewhere == 0) return 0;
    std::uint64_t bytes = 0;
    for (const codec::TensorPointer& tensor : value.tensors)
        bytes += tensor->bytes();
    return bytes - std::min(bytes, exchange.body().size());
}

/// "windows[17].label"
std::string place_of(const std::string& stream, std::uint64_t number, const std::string& inside) {
    const bool needs_dot = !inside.empty() && inside.front() != '[';
    return stream + '[' + std::to_string(number) + ']' + (needs_dot ? "." : "") + inside;
}

}  // namespace

class StreamCall::Source final : public detail::ItemSource {
public:
    Source(std::shared_ptr<StreamCall> call, const Flow& flow)
        : call_(std::move(call)), name_(flow.info.name), in_(flow.in), turns_(call_->setup_.out->socket()) {}

    bool next(const Read& read) override {
        turns_.before_wait([this] { return in_->has_next(); });
        streams::Inflow::Next next = in_->next();
        const Telling telling{*this, next.taken};  // once its memory is ours: the client may use it for the next one
        if (next.item) {
            read_item(*next.item, read);
            return true;
        }
        if (next.closed) throw CancelledError();
        ended_ = true;
        return false;
    }
    void stop() noexcept override {
        if (ended_) return;
        ended_ = true;
        try {
            const bool over = in_->is_closed();
            in_->close(false);
            if (!over) call_->setup_.out->say(streams::stop(call_->id(), name_));
        } catch (const std::exception&) {  // no memory: the client hears of it when the call ends
        }
    }

private:
    struct Telling {
        const Source& source;
        std::optional<std::uint64_t> taken;
        ~Telling() {
            if (taken) source.tell(*taken);
        }
    };
    void tell(std::uint64_t taken) const noexcept {
        try {
            call_->setup_.out->say(streams::taken(call_->id(), name_, taken));
        } catch (const std::exception&) {  // no memory: the client waits until the call ends
            call_->setup_.out->give_up();
        }
    }

    void read_item(const streams::Item& item, const Read& read) const {
        tensor::Incoming tensors{item.tensors, item.owner};
        tensors.hold = call_->setup_.values.holder(call_->principal());
        tensor::TensorExchange exchange(std::move(tensors));
        exchange.set_media(call_->setup_.recipient.media());
        MessageReferences references(call_->setup_.values, call_->principal());
        const FunctionOptions& options = call_->setup_.function->options();
        const codec::JsonSource source(exchange, &references, Placement{options.device, options.dtype});
        try {
            read(ValueReader(source, codec::JsonSource::node(*item.value)));
            call_->lent_->add(exchange.take_lent());
            // Whose turn it is to use an object is settled before a call begins.
            if (!source.uses().empty()) throw InvalidValue({}, "a value: objects are passed as arguments", "handle");
        } catch (const InvalidValue& error) {
            throw BadItem(place_of(name_, item.number, error.path), error.expected, error.got);
        }
        call_->setup_.ways.add(exchange);
    }

    const std::shared_ptr<StreamCall> call_;
    const std::string name_;
    const std::shared_ptr<streams::Inflow> in_;
    http::WebSocketTurns turns_;
    bool ended_ = false;
};

class StreamCall::Sink final : public detail::ItemSink {
public:
    Sink(std::shared_ptr<StreamCall> call, const Flow& flow)
        : call_(std::move(call)),
          name_(flow.info.name),
          out_(flow.out),
          socket_(call_->setup_.out->socket()),
          start_(streams::item_start(call_->id(), name_)) {}

    bool put(const Write& write) override {
        if (ended_) throw std::logic_error("the stream " + name_ + " was ended: nothing can be written to it");
        if (socket_ != nullptr && out_->is_full()) socket_->stop_reading_here();
        switch (out_->wait()) {
            case streams::Outflow::Room::over: throw CancelledError();
            case streams::Outflow::Room::stopped: return false;
            case streams::Outflow::Room::free: break;
        }
        send(write);
        return true;
    }
    void end() override {
        if (std::exchange(ended_, true)) return;
        call_->setup_.out->say(streams::end(call_->id(), name_));
    }
    void leave(bool) noexcept override {}  // the end of the call is the end of its streams

private:
    void send(const Write& write) {
        const Recipient& to = call_->setup_.recipient;
        tensor::TensorExchange exchange({}, to.meta.policy, {}, to.media());
        HandleGrants grants = call_->setup_.recipients.grants(call_->principal(), to);
        ReplyText json(call_->setup_.values, call_->principal());
        json += start_;
        std::uint64_t elsewhere = 0;
        try {
            print(write, exchange, grants, json, elsewhere);
        } catch (const tensor::TransportNotPossible& error) {
            grants.take_back();
            call_->note_unsent(std::current_exception(), json_rpc::transport_not_possible(error.reasons_json()));
            throw;
        } catch (const json_rpc::TextTooLong&) {
            grants.take_back();
            call_->note_unsent(std::current_exception(), too_long(call_->setup_.max_item_json));
            throw;
        } catch (const tensor::TooManyElements& error) {
            grants.take_back();
            call_->note_unsent(std::current_exception(), too_many_elements(error));
            throw;
        } catch (const TooManyHandles& error) {
            grants.take_back();
            call_->note_unsent(std::current_exception(), json_rpc::out_of_memory(error.what()));
            throw;
        } catch (...) {
            grants.take_back();
            throw;
        }
        out_->sent(streams::message_bytes(json.size(), exchange.body().size()) + elsewhere);
        call_->setup_.ways.add(exchange);
        if (call_->setup_.out->send(std::move(json), exchange.body())) return;
        grants.take_back();
        throw CancelledError();
    }

    void print(const Write& write, tensor::TensorExchange& exchange, HandleGrants& grants, ReplyText& json,
               std::uint64_t& elsewhere) const {
        json.set_limit(call_->setup_.max_item_json);
        codec::Value value;
        codec::JsonSink sink(value, exchange);
        write(ValueWriter(sink, sink.root()));
        const codec::DescribeObject describe = [&](const ObjectPointer& object) { return grants.describe(object); };
        codec::PlaceholderPrinter placeholders(value, exchange, describe);
        json_rpc::print_json(value.json, placeholders, json);
        if (call_->recipient().memory.failed())
            throw std::runtime_error("shared memory of the caller failed: the item is not sent");
        elsewhere = bytes_elsewhere(value, exchange);
        json += streams::item_end(elsewhere);
    }

    const std::shared_ptr<StreamCall> call_;
    const std::string name_;
    const std::shared_ptr<streams::Outflow> out_;
    const std::shared_ptr<http::WebSocket> socket_;
    const std::string start_;
    bool ended_ = false;
};

StreamCall::StreamCall(Setup setup, streams::Window client_window) : setup_(std::move(setup)) {
    const auto parameters = setup_.function->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].flow == shared_tensor::Flow::value) continue;
        Flow& flow =
            flows_.emplace_back(Flow{{parameters[i].name, parameters[i].flow == shared_tensor::Flow::reader}, i});
        if (flow.info.reads) {
            flow.in = std::make_shared<streams::Inflow>(setup_.window);
        } else {
            flow.out = std::make_shared<streams::Outflow>(client_window);
        }
    }
}

const StreamCall::Flow& StreamCall::at(std::size_t parameter) const {
    const auto found =
        std::find_if(flows_.begin(), flows_.end(), [&](const Flow& flow) { return flow.parameter == parameter; });
    SHARED_TENSOR_CHECK(found != flows_.end(), "a parameter that is no stream");
    return *found;
}

std::shared_ptr<detail::ItemSource> StreamCall::source(std::size_t parameter) {
    return std::make_shared<Source>(shared_from_this(), at(parameter));
}

std::shared_ptr<detail::ItemSink> StreamCall::sink(std::size_t parameter) {
    return std::make_shared<Sink>(shared_from_this(), at(parameter));
}

std::vector<streams::StreamInfo> StreamCall::infos() const {
    std::vector<streams::StreamInfo> infos;
    for (const Flow& flow : flows_)
        infos.push_back(flow.info);
    return infos;
}

StreamCall::Flow* StreamCall::find(std::string_view name) {
    const auto found =
        std::find_if(flows_.begin(), flows_.end(), [&](const Flow& flow) { return flow.info.name == name; });
    return found == flows_.end() ? nullptr : &*found;
}

std::string StreamCall::take(streams::Word word, streams::Item item) {
    using Kind = streams::Word::Kind;
    Flow* flow = find(word.stream);
    if (flow == nullptr) return "the call has no stream \"" + word.stream + '"';
    const bool about_reading = word.kind == Kind::item || word.kind == Kind::end;
    if (about_reading != flow->info.reads)
        return about_reading ? "the function does not read from it" : "the function does not write to it";
    if (word.kind == Kind::item && flow->in->add(std::move(item)) == streams::Inflow::Added::refused)
        return "it has ended, or the item is beyond its window";
    if (word.kind == Kind::end) flow->in->end();
    if (word.kind == Kind::taken && !flow->out->taken(word.taken)) return "so many items were not sent";
    if (word.kind == Kind::stop) flow->out->stop();
    return {};
}

void StreamCall::note_unsent(std::exception_ptr thrown, json_rpc::Error error) {
    Unsent unsent{{}, std::move(error)};
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception& exception) {
        unsent.type = detail::demangled(typeid(exception).name());
    }
    unsent_.with([&](auto& held) { held = std::move(unsent); });
}

json_rpc::Error StreamCall::explained(const json_rpc::Error& error) const {
    const auto unsent = unsent_.with([](const auto& held) { return held; });
    const bool its_own = unsent && error.is(json_rpc::ErrorCode::function_failed) && error.data.is_object() &&
                         error.data.value("type", "") == unsent->type;
    return its_own ? unsent->error : error;
}

void StreamCall::cancelled() {
    for (const Flow& flow : flows_) {
        if (flow.in != nullptr) flow.in->close(false);
        if (flow.out != nullptr) flow.out->close();
    }
}

}  // namespace shared_tensor::server
