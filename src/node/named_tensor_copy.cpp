#include <unistd.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include <shared_tensor/node.hpp>

#include "client/transfers/publication.hpp"
#include "client/transfers/transfer.hpp"
#include "server/methods/rejected.hpp"
#include "server/services.hpp"

namespace shared_tensor {

namespace {

std::string user_of(const server::Services& all, const std::string& token) {
    const auto user = all.access.check_local(::getuid(), token);
    if (const auto* rejected = std::get_if<server::Rejection>(&user))
        client::throw_error(json_rpc::not_authorised(rejected->reason), "");
    return std::get<server::Principal>(user).name;
}

/// Does `work`, and throws errors of the server of this process as a client does.
template <class Work>
auto or_error(Work work) {
    try {
        return work();
    } catch (const server::Rejected& rejected) {
        client::throw_error(rejected.error, "the server of this process");
    }
}

}  // namespace

NamedTensorCopy::NamedTensorCopy(const Server& server, const std::string& token, const NamedTensors& from,
                                 std::string_view name, PullOptions options)
    : all_(server.services()), owner_(user_of(all_, token)) {
    if (options.first_row || options.last_row || options.part)
        throw std::invalid_argument("NamedTensorCopy: rows or a part of a tensor are not copied under its name");
    const std::string own_name(name);
    if (const std::string why = runtime::tensor_name_rejection(own_name); !why.empty())
        or_error([&] { server::reject("name", "another name", why); });
    options.memory = [this, own_name](std::uint64_t bytes) {
        all_.names.check({owner_, own_name, bytes});
        const tensor::Block block = all_.names.take_block(owner_, bytes);
        return TensorRef(block.data, DType::uint8, {static_cast<std::int64_t>(bytes)}, {}, {}, block.owner);
    };
    pulled_ = or_error([&] { return from.pull(name, options); });
    version_ = pulled_->version();
}

Published NamedTensorCopy::publish() {
    if (!pulled_) throw std::logic_error("NamedTensorCopy::publish() was called before");
    const NamedTensor::Content& content = pulled_->content();
    const std::uint64_t bytes = content.tensor != nullptr ? content.tensor->bytes() : client::bytes_of(content.members);
    const server::NamedMetadata metadata(content.metadata.begin(), content.metadata.end());
    server::NamedTensors::Put what{owner_, content.name, bytes};
    what.wanted.version = content.version;
    Published published{content.name, content.version, bytes};
    const auto place = [&] {
        server::NamedTensors::Placed placed = content.tensor != nullptr ? all_.names.place_own(owner_, content.tensor)
                                                                        : all_.names.place_own(owner_, content.members);
        placed.value->metadata = metadata;
        published.copied = placed.copied;
        return std::move(placed.value);
    };
    or_error([&] {
        if (content.version > runtime::kHighestVersion)
            server::reject("version", "at most " + std::to_string(runtime::kHighestVersion),
                           std::to_string(content.version));
        server::NamedTensors::check_content("the other server's set", content.members, metadata);
        return all_.names.put(what, place);
    });
    pulled_.reset();
    return published;
}

}  // namespace shared_tensor
