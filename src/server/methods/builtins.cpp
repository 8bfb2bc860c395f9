#include "server/methods/builtins.hpp"

namespace shared_tensor::server {

std::optional<std::string> owner_filter(const Principal& principal) {
    if (principal.admin) return std::nullopt;
    return principal.name;
}

void Builtins::insert(Description description, json_rpc::Json parameters, Method method) {
    descriptions_.push_back({{"name", description.name},
                             {"summary", description.summary},
                             {"paramStructure", "either"},
                             {"params", std::move(parameters)},
                             {"result", {{"name", "result"}, {"schema", std::move(description.result)}}},
                             {"x-builtin", true}});
    methods_[description.name] = std::move(method);
}

const Builtins::Method* Builtins::find(std::string_view name) const {
    const auto found = methods_.find(name);
    return found == methods_.end() ? nullptr : &found->second;
}

}  // namespace shared_tensor::server
