#include "client/call/outgoing.hpp"

#include <span>
#include <utility>

#include "protocol/codec/frame.hpp"
#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::client {

/// The request and its parameters, kept to write the text again.
struct Outgoing::Written {
    json_rpc::Request request;
    codec::Value params;
};

Outgoing::Outgoing(Form form, std::uint64_t first_id, const TensorPorts& ports, std::string require)
    : form_(form), first_id_(first_id), port_(std::make_unique<OutgoingPort>(ports, std::move(require))) {}
Outgoing::Outgoing(Outgoing&&) noexcept = default;
Outgoing::~Outgoing() = default;

std::uint64_t Outgoing::call(std::string_view method, const CallArguments& arguments, json_rpc::Json meta) {
    const std::uint64_t id = first_id_ + calls_;
    append(method, arguments, id, std::move(meta));
    ++calls_;
    return id;
}

void Outgoing::notify(std::string_view method, const CallArguments& arguments) {
    append(method, arguments, std::nullopt, nullptr);
}

void Outgoing::append(std::string_view method, const CallArguments& arguments, std::optional<json_rpc::Json> id,
                      json_rpc::Json meta) {
    Written item{{std::string(method), nullptr, std::move(id), std::move(meta)}, {}};
    if (!arguments.empty()) {
        codec::JsonSink sink(item.params, *port_, codec::JsonSink::References::write);
        arguments.write(ValueWriter(sink, sink.root()));
        item.request.params = std::move(item.params.json);
    }
    print(item);
    if (is_batch()) return;
    method_ = item.request.method;
    if (!item.params.tensors.empty()) written_ = std::make_shared<Written>(std::move(item));
}

void Outgoing::print(const Written& item) {
    const codec::DescribeObject describe = &handle_of;
    codec::PlaceholderPrinter placeholders(item.params, *port_, describe);
    const std::size_t start = text_.size();
    try {
        if (is_batch()) text_ += items_ == 0 ? '[' : ',';
        json_rpc::print(item.request, text_, item.params.is_plain() ? nullptr : &placeholders);
        objects_.insert(objects_.end(), item.params.objects.begin(), item.params.objects.end());
    } catch (...) {
        text_.resize(start);  // the other items of a batch may still be sent
        throw;
    }
    ++items_;
}

Outgoing Outgoing::again() const {
    Outgoing next(form_, first_id_, port_->ports(), port_->require());
    next.calls_ = calls_;
    next.method_ = method_;
    next.written_ = written_;
    next.print(*written_);
    next.finish();
    return next;
}

void Outgoing::finish() {
    if (is_batch()) text_ += ']';
    if (port_->used() != nullptr) text_ = codec::frame_head(text_);
    head_ = std::make_shared<const std::string>(std::move(text_));
}

std::string Outgoing::memory() const {
    const OutgoingTensors* tensors = port_->used();
    return tensors != nullptr ? tensors->memory() : std::string();
}

std::uint64_t Outgoing::copied() const {
    const OutgoingTensors* tensors = port_->used();
    return tensors != nullptr ? tensors->copied() : 0;
}

void Outgoing::answered() const noexcept { port_->answered(); }

std::string_view Outgoing::content_type() const {
    return port_->used() != nullptr ? codec::kFrameContentType : std::string_view("application/json");
}

std::vector<BodyPart> Outgoing::body() const {
    std::vector<BodyPart> parts{{std::as_bytes(std::span(*head_)), head_}};
    if (const OutgoingTensors* tensors = port_->used())
        parts.insert(parts.end(), tensors->parts().begin(), tensors->parts().end());
    return parts;
}

}  // namespace shared_tensor::client
