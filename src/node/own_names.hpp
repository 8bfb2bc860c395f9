#pragma once

#include <cstdint>
#include <string>

#include <shared_tensor/server.hpp>
#include <shared_tensor/tensors.hpp>

#include "client/transfers/publication.hpp"
#include "server/files/named_tensors.hpp"
#include "server/services.hpp"

// The named tensors of a server of this process, used without a connection. Errors are thrown as a client of the server
// throws them, with texts that begin with "the server of this process".

namespace shared_tensor::node {

/// The user that `token` stands for (empty: none is needed), who is to publish `name`. Throws NotAuthorised for an
/// unknown token and for a user who may not publish, InvalidParams for an invalid name.
std::string publisher_of(const server::Services& all, const std::string& token, const std::string& name);

/// Memory for `bytes` bytes that are to be published under `name`. Throws ServerOutOfMemory, ShuttingDown.
tensor::Block block_for(server::Services& all, const std::string& owner, const std::string& name, std::uint64_t bytes);

/// One tensor, or a set.
struct Content {
    codec::TensorPointer tensor;  ///< null: a set
    tensor::TensorMap members{};

    std::uint64_t bytes() const { return tensor != nullptr ? tensor->bytes() : client::bytes_of(members); }
    bool is_on_device() const;
};

/// `copy`: the tensors are their caller's, who may write to them later. `memory`: nobody writes to them any more, so
/// they stay where they are if the server can share that memory.
enum class Take { copy, memory };

/// Publishes the content as tensor.put does. Throws InvalidParams, ServerOutOfMemory, ShuttingDown.
Published publish(server::Services& all, const std::string& owner, const std::string& name, Content content,
                  const PutOptions& options, Take take);

}  // namespace shared_tensor::node
