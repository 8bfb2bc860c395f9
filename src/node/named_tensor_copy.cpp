#include <stdexcept>
#include <string>
#include <utility>

#include <shared_tensor/node.hpp>

#include "client/transfers/transfer.hpp"
#include "node/own_names.hpp"

namespace shared_tensor {

NamedTensorCopy::NamedTensorCopy(const Server& server, const std::string& token, const NamedTensors& from,
                                 std::string_view name, PullOptions options)
    : all_(server.services()), owner_(node::publisher_of(all_, token, std::string(name))) {
    if (options.first_row || options.last_row || options.part)
        throw std::invalid_argument("NamedTensorCopy: rows or a part of a tensor are not copied under its name");
    options.memory = [this, own_name = std::string(name)](std::uint64_t bytes) {
        const tensor::Block block = node::block_for(all_, owner_, own_name, bytes);
        return TensorRef(block.data, DType::uint8, {static_cast<std::int64_t>(bytes)}, {}, {}, block.owner);
    };
    pulled_ = from.pull(name, options);
    version_ = pulled_->version();
}

Published NamedTensorCopy::publish() {
    if (!pulled_) throw std::logic_error("NamedTensorCopy::publish() was called before");
    const NamedTensor::Content& pulled = pulled_->content();
    const PutOptions options{.metadata = pulled.metadata, .version = pulled.version};
    Published published =
        node::publish(all_, owner_, pulled.name, {pulled.tensor, pulled.members}, options, node::Take::memory);
    pulled_.reset();
    return published;
}

}  // namespace shared_tensor
