#include "server/methods/builtins.hpp"

#include <algorithm>

#include "runtime/functions/open_rpc.hpp"

namespace shared_tensor {

server::TensorParameter Codec<server::TensorParameter>::read(const ValueReader& reader) {
    reader.require(Kind::tensor, "tensor");
    (void)reader.tensor();
    return {static_cast<const codec::JsonSource&>(reader.source()).imported(reader.node())};
}

void Codec<server::TensorParameter>::schema(ValueWriter writer) {
    writer.object();
    writer.member("$ref").string("#/components/schemas/Tensor");
}

}  // namespace shared_tensor

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

std::string list_of(std::span<const std::string_view> names) {
    if (names.empty()) return "no parameters: there are none";
    std::string text = "one of the parameters that there are: ";
    for (const std::string_view name : names)
        text.append(name == names.front() ? "" : ", ").append(name);
    return text;
}

}  // namespace

std::vector<const Json*> match_parameters(std::span<const std::string_view> names, const Json& params) {
    if (params.is_array() && params.size() > names.size()) {
        const std::string most = std::to_string(names.size());
        throw MethodError(
            json_rpc::invalid_params(most, "at most " + most + " arguments", std::to_string(params.size())));
    }
    std::vector<const Json*> given(names.size(), nullptr);
    const auto give = [&](std::size_t place, const Json& value) {
        if (!value.is_null()) given[place] = &value;
    };
    if (params.is_array()) {
        for (std::size_t i = 0; i < params.size(); ++i)
            give(i, params[i]);
    } else if (params.is_object()) {
        for (const auto& [name, value] : params.items()) {
            const auto found = std::find(names.begin(), names.end(), name);
            if (found == names.end())
                throw MethodError(json_rpc::invalid_params(name, list_of(names), "an unknown parameter"));
            give(static_cast<std::size_t>(found - names.begin()), value);
        }
    }
    return given;
}

void reading_from(const codec::JsonSource& source, const std::function<void()>& act) {
    try {
        act();
    } catch (const codec::Unresolved& error) {
        throw MethodError(error.error());
    } catch (const InvalidValue& error) {
        if (source.rejection()) throw MethodError(*source.rejection());
        throw MethodError(json_rpc::invalid_params(error.path, error.expected, error.got));
    }
}

Json describe_parameter(std::string_view name, bool required, void (*schema)(ValueWriter)) {
    return {{"name", name}, {"required", required}, {"schema", runtime::written_schema(schema)}};
}

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
