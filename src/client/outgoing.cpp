#include "client/outgoing.hpp"

#include <span>
#include <stdexcept>
#include <utility>

#include "codec/frame.hpp"
#include "codec/json_sink.hpp"
#include "json_rpc/print.hpp"

namespace shared_tensor::client {

namespace {

codec::Json handle_of(const ObjectPointer& object) {
    if (object->id.empty())
        throw std::invalid_argument("an object that did not come from a server cannot be passed to one");
    codec::Json handle{{"id", object->id}};
    if (!object->type.empty()) handle["type"] = object->type;
    return handle;
}

}  // namespace

/// Most calls have no tensor: what carries them is made for the first one.
class Outgoing::Port final : public codec::TensorPort {
public:
    Port(const TensorPorts& ports, std::string require) : ports_(&ports), require_(std::move(require)) {}

    codec::TensorPointer import(const codec::Json& descriptor) override { return real().import(descriptor); }
    codec::TensorPointer wrap(const at::Tensor& tensor) override { return real().wrap(tensor); }
    void describe(const codec::TensorPointer& tensor, std::string& out) override { real().describe(tensor, out); }

    const OutgoingTensors* used() const { return real_.get(); }
    void answered() noexcept {
        if (real_) real_->answered();
    }

private:
    OutgoingTensors& real() {
        if (!real_) real_ = ports_->outgoing(require_);
        return *real_;
    }
    const TensorPorts* ports_;
    const std::string require_;
    std::unique_ptr<OutgoingTensors> real_;
};

Outgoing::Outgoing(Form form, std::uint64_t first_id, const TensorPorts& ports, std::string require)
    : form_(form), first_id_(first_id), port_(std::make_unique<Port>(ports, std::move(require))) {}
Outgoing::Outgoing(Outgoing&&) noexcept = default;
Outgoing::~Outgoing() = default;

std::uint64_t Outgoing::call(std::string_view method, const detail::Arguments& arguments, json_rpc::Json meta) {
    const std::uint64_t id = first_id_ + calls_;
    append(method, arguments, id, std::move(meta));
    ++calls_;
    return id;
}

void Outgoing::notify(std::string_view method, const detail::Arguments& arguments) {
    append(method, arguments, std::nullopt, nullptr);
}

void Outgoing::append(std::string_view method, const detail::Arguments& arguments, std::optional<json_rpc::Json> id,
                      json_rpc::Json meta) {
    json_rpc::Request request{std::string(method), nullptr, std::move(id), std::move(meta)};
    codec::Value value;
    if (!arguments.empty()) {
        codec::JsonSink sink(value, *port_, codec::JsonSink::References::write);
        arguments.write(ValueWriter(sink, sink.root()));
        request.params = std::move(value.json);
    }
    const codec::DescribeObject describe = &handle_of;
    codec::PlaceholderPrinter placeholders(value, *port_, describe);
    const std::size_t start = text_.size();
    try {
        if (is_batch()) text_ += items_ == 0 ? '[' : ',';
        if (value.is_plain()) {
            json_rpc::print(request, text_);
        } else {
            json_rpc::print(request, placeholders, text_);
        }
        objects_.insert(objects_.end(), value.objects.begin(), value.objects.end());
    } catch (...) {
        text_.resize(start);  // the others of a batch may still be sent
        throw;
    }
    if (!is_batch()) method_ = std::move(request.method);
    ++items_;
}

void Outgoing::finish() {
    if (is_batch()) text_ += ']';
    if (const OutgoingTensors* tensors = port_->used()) {
        text_ = codec::frame_head(text_);
        tensors_ = tensors->parts();
    }
    head_ = std::make_shared<const std::string>(std::move(text_));
}

bool Outgoing::names_memory() const { return port_->used() != nullptr && port_->used()->names_memory(); }

void Outgoing::answered() const noexcept { port_->answered(); }

std::string_view Outgoing::content_type() const {
    return port_->used() != nullptr ? codec::kFrameContentType : std::string_view("application/json");
}

std::vector<http::BodyPart> Outgoing::body() const {
    std::vector<http::BodyPart> parts;
    parts.reserve(1 + tensors_.size());
    parts.push_back({std::as_bytes(std::span(*head_)), head_});
    parts.insert(parts.end(), tensors_.begin(), tensors_.end());
    return parts;
}

}  // namespace shared_tensor::client
