#include "client/tensor_ports.hpp"

#include <utility>

#include "tensor/exchange.hpp"

namespace shared_tensor::client {

namespace {

/// Requests carry tensors as bytes behind the JSON, always: the server takes them so.
tensor::ExportPolicy request_policy() {
    tensor::ExportPolicy policy;
    policy.accept = {tensor::Way::body};
    return policy;
}

class Outbound final : public OutgoingTensors {
public:
    codec::TensorPointer import(const codec::Json& descriptor) override { return exchange_.import(descriptor); }
    codec::TensorPointer wrap(const at::Tensor& tensor) override { return exchange_.wrap(tensor); }
    codec::Json describe(const codec::TensorPointer& tensor) override { return exchange_.describe(tensor); }

    std::vector<http::BodyPart> parts() const override {
        std::vector<http::BodyPart> parts;
        parts.reserve(exchange_.body().parts().size());
        for (const auto& part : exchange_.body().parts())
            parts.push_back({part.bytes, part.owner});
        return parts;
    }

private:
    tensor::TensorExchange exchange_{{}, request_policy()};
};

class RealPorts final : public TensorPorts {
public:
    std::unique_ptr<OutgoingTensors> outgoing() const override { return std::make_unique<Outbound>(); }
    std::unique_ptr<codec::TensorPort> incoming(std::span<const std::byte> bytes,
                                                std::shared_ptr<const void> owner) const override {
        return std::make_unique<tensor::TensorExchange>(tensor::Incoming{bytes, std::move(owner)});
    }
};

}  // namespace

std::unique_ptr<TensorPorts> tensor_ports() { return std::make_unique<RealPorts>(); }

}  // namespace shared_tensor::client
