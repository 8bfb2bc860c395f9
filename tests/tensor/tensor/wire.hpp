#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::test {

/// A message with one tensor, as it lies in memory after it crossed: JSON text and a body.
struct Stream {
    std::string json;
    std::shared_ptr<std::vector<std::byte>> body;
    std::string summary;  ///< of the side that sent it

    tensor::Incoming incoming() const { return {*body, body}; }
};

tensor::ExportPolicy only(tensor::TransportKind transport);
Stream send(const TensorRef& tensor, tensor::ExportPolicy policy);
/// What the other side has of it.
codec::TensorPointer receive(const Stream& stream);

/// Same dtype, shape and bytes, NaNs and signs of zero included.
bool identical(const TensorRef& a, const TensorRef& b);

}  // namespace shared_tensor::test
