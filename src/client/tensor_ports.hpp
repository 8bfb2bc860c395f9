#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/value.hpp"
#include "http/message.hpp"

namespace shared_tensor::client {

/// The tensors of one request.
class OutgoingTensors : public codec::TensorPort {
public:
    /// Their bytes as the descriptors say, to be written behind the JSON.
    virtual std::vector<http::BodyPart> parts() const = 0;
};

/// How the tensors of messages cross: a seam, so that the rules of calls can be tested without libtorch.
/// Thread safety: all methods from any thread.
class TensorPorts {
public:
    virtual ~TensorPorts() = default;
    virtual std::unique_ptr<OutgoingTensors> outgoing() const = 0;
    /// `bytes` are those behind the JSON of an answer in frame form; tensors that view them keep `owner`.
    virtual std::unique_ptr<codec::TensorPort> incoming(std::span<const std::byte> bytes,
                                                        std::shared_ptr<const void> owner) const = 0;
};

/// Those of src/tensor.
std::unique_ptr<TensorPorts> tensor_ports();

}  // namespace shared_tensor::client
