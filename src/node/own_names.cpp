#include "node/own_names.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>

#include <shared_tensor/value.hpp>

#include "client/call/failure.hpp"
#include "protocol/json_rpc/error.hpp"
#include "server/methods/rejected.hpp"

namespace shared_tensor::node {

using server::NamedTensors;

namespace {

constexpr const char *kPut = "tensor.put", *kHere = "the server of this process";

/// Does `work`, and throws errors of the server as a client does.
template <class Work>
auto or_error(Work work) {
    try {
        return work();
    } catch (const server::Rejected& rejected) {
        client::throw_error(rejected.error, kHere);
    } catch (const InvalidValue& error) {
        client::throw_error(json_rpc::invalid_params(error.path, error.expected, error.got), kHere);
    }
}

NamedTensors::Placed placed_in(const NamedTensors& names, const std::string& owner, Content content, Take take) {
    const bool copies = take == Take::copy;
    if (content.tensor != nullptr)
        return copies ? names.place(owner, content.tensor) : names.place_own(owner, content.tensor);
    return copies ? names.place(owner, content.members) : names.place_own(owner, std::move(content.members));
}

}  // namespace

bool Content::is_on_device() const {
    if (tensor != nullptr) return tensor->on_device();
    return std::any_of(members.begin(), members.end(), [](const auto& one) { return one.second->on_device(); });
}

std::string publisher_of(const server::Services& all, const std::string& token, const std::string& name) {
    const auto user = all.access.check_local(::getuid(), token);
    if (const auto* rejected = std::get_if<server::Rejection>(&user))
        client::throw_error(json_rpc::not_authorised(rejected->reason), "");
    const auto& principal = std::get<server::Principal>(user);
    if (!principal.may_call(kPut)) client::throw_error(json_rpc::not_authorised(server::reason_against(kPut)), kHere);
    or_error([&] { NamedTensors::check_name(name); });
    return principal.name;
}

tensor::Block block_for(server::Services& all, const std::string& owner, const std::string& name, std::uint64_t bytes) {
    return or_error([&] {
        all.names.check({owner, name, bytes});
        return all.names.take_block(owner, bytes);
    });
}

Published publish(server::Services& all, const std::string& owner, const std::string& name, Content content,
                  const PutOptions& options, Take take) {
    const server::NamedMetadata metadata(options.metadata.begin(), options.metadata.end());
    const std::uint64_t bytes = content.bytes();
    const auto place = [&] {
        NamedTensors::Placed placed = placed_in(all.names, owner, std::move(content), take);
        placed.value->metadata = metadata;
        return placed;
    };
    return or_error([&] {
        if (options.base && options.if_version) server::reject("if_version", "nothing beside base", "a version");
        if (options.version && (*options.version == 0 || *options.version > runtime::kHighestVersion))
            server::reject("version", "1 to " + std::to_string(runtime::kHighestVersion),
                           std::to_string(*options.version));
        NamedTensors::check_content("tensors", content.members, metadata);
        NamedTensors::Put what{owner, name, bytes};
        what.wanted = {options.base ? options.base : options.if_version, options.version};
        what.has_base = options.base.has_value();
        const NamedTensors::Made made = all.names.put(what, place);
        return Published{name, made.named->version, NamedTensors::value_of(*made.named).data_bytes(), made.copied, {}};
    });
}

}  // namespace shared_tensor::node
