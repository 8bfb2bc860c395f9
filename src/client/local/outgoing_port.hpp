#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "client/local/tensor_ports.hpp"

namespace shared_tensor::client {

/// The tensors of one message to the server. The real port is made for the first tensor, because most messages have
/// none.
class OutgoingPort final : public codec::TensorPort {
public:
    OutgoingPort(const TensorPorts& ports, std::string require) : ports_(&ports), require_(std::move(require)) {}

    codec::TensorPointer import(const codec::Json& descriptor) override { return real().import(descriptor); }
    codec::TensorPointer wrap(const TensorRef& tensor) override { return real().wrap(tensor); }
    void describe(const codec::TensorPointer& tensor, json_rpc::LongText& out) override {
        real().describe(tensor, out);
    }

    std::unique_ptr<OutgoingPort> another() const { return std::make_unique<OutgoingPort>(*ports_, require_); }
    /// Null if the message has no tensor.
    const OutgoingTensors* used() const { return real_.get(); }
    std::unique_ptr<OutgoingTensors> take() { return std::move(real_); }
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

/// The handle of an object, as messages contain it. Throws std::invalid_argument if the object did not come from a
/// server.
inline codec::Json handle_of(const ObjectPointer& object) {
    if (object->id.empty())
        throw std::invalid_argument("an object that did not come from a server cannot be passed to one");
    codec::Json handle{{"id", object->id}};
    if (!object->type.empty()) handle["type"] = object->type;
    return handle;
}

}  // namespace shared_tensor::client
