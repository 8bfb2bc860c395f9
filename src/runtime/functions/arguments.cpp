#include "runtime/functions/arguments.hpp"

#include <algorithm>
#include <atomic>
#include <map>

namespace shared_tensor::runtime {

namespace {

using codec::Json;

std::string listed(const FunctionRecord& function) {
    std::string text;
    for (const ParameterInfo& parameter : function.parameters()) {
        if (parameter.flow == Flow::value) text.append(text.empty() ? "" : ", ").append(parameter.name);
    }
    return text.empty() ? "no parameters" : "the parameters " + text;
}

/// The indices of the parameters that are given with the call: all except streams.
std::vector<std::size_t> value_places(const FunctionRecord& function) {
    const auto parameters = function.parameters();
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].flow == Flow::value) places.push_back(i);
    }
    return places;
}

std::size_t required_count(const FunctionRecord& function) {
    const auto parameters = function.parameters();
    return static_cast<std::size_t>(
        std::count_if(parameters.begin(), parameters.end(), [](const auto& parameter) { return parameter.required; }));
}

std::string wanted_count(const FunctionRecord& function) {
    const std::size_t least = required_count(function);
    const std::size_t most = value_places(function).size();
    std::string text = least == most ? std::to_string(most) : std::to_string(least) + " to " + std::to_string(most);
    return text + (most == 1 ? " argument" : " arguments");
}

std::variant<ArgumentNodes, json_rpc::Error> by_position(const FunctionRecord& function, const Json& params) {
    const std::vector<std::size_t> places = value_places(function);
    if (params.size() > places.size()) {
        return json_rpc::invalid_params(std::to_string(places.size()), wanted_count(function),
                                        std::to_string(params.size()));
    }
    ArgumentNodes nodes(function.parameters().size(), nullptr);
    for (std::size_t i = 0; i < params.size(); ++i)
        nodes[places[i]] = codec::JsonSource::node(params[i]);
    return nodes;
}

std::variant<ArgumentNodes, json_rpc::Error> by_name(const FunctionRecord& function, const Json& params) {
    const auto parameters = function.parameters();
    ArgumentNodes nodes(parameters.size(), nullptr);
    std::size_t found = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const auto member = params.find(parameters[i].name);
        if (member == params.end()) continue;
        if (parameters[i].flow != Flow::value)
            return json_rpc::invalid_params(parameters[i].name,
                                            "no argument: a stream's items come while the call runs", "an argument");
        nodes[i] = codec::JsonSource::node(*member);
        ++found;
    }
    if (found == params.size()) return nodes;
    for (const auto& item : params.items()) {
        const std::string& name = item.key();
        const bool known =
            std::any_of(parameters.begin(), parameters.end(), [&](const auto& p) { return p.name == name; });
        if (!known) return json_rpc::invalid_params(name, listed(function), "an unknown parameter");
    }
    return nodes;
}

/// An object inside a referenced value has no id. It gets a number, so that it equals no other object.
void append_object(const Json& json, bool has_id, ArgumentsKey& key) {
    static std::atomic<std::uint64_t> serial{0};
    key.has_objects = true;
    if (has_id) return json_rpc::print_json(json, key.text);
    key.text.append("object ").append(std::to_string(++serial));
}

void append_key(const Json& given, const codec::JsonSource& source, Digests digests, ArgumentsKey& key) {
    const Json& json = source.at(codec::JsonSource::node(given));
    const ValueSource::Node node = codec::JsonSource::node(json);
    if (source.kind(node) == Kind::handle) return append_object(json, !source.is_inner_object(node), key);
    if (const codec::TensorPointer tensor = source.imported(node)) {
        if (digests == Digests::stop && tensor->append_key(key.text)) return;
        key.has_digests = true;
        if (digests == Digests::compute) tensor->append_digest(key.text);
        return;
    }
    if (json.is_array() || json.is_object()) {
        key.text.push_back(json.is_array() ? '[' : '{');
        for (const auto& [name, member] : json.items()) {
            if (key.has_digests && digests == Digests::stop) return;
            if (json.is_object()) json_rpc::print_json(name, key.text);
            append_key(member, source, digests, key);
            key.text.push_back(',');
        }
        key.text.push_back(json.is_array() ? ']' : '}');
        return;
    }
    json_rpc::print_json(json, key.text);
}

/// The indices of the items with each id, in their order.
using Places = std::map<Json, std::vector<std::size_t>>;

Places places_of(std::span<const json_rpc::Request* const> requests) {
    Places places;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        if (requests[i] != nullptr && requests[i]->id && !requests[i]->id->is_null())
            places[*requests[i]->id].push_back(i);
    }
    return places;
}

json_rpc::Error no_item(const Json& id, const char* why) {
    std::string text;
    json_rpc::print_json(id, text);
    return json_rpc::invalid_params("$ref.item", "the id of one earlier item of the same batch", text + why);
}

void add_input(const Json& id, std::size_t at, const Places& places, BatchInputs& inputs) {
    const auto fail = [&](const char* why) {
        if (!inputs.error) inputs.error = no_item(id, why);
    };
    if (id.is_null()) return fail(", which names nothing");
    const auto found = places.find(id);
    if (found == places.end()) return fail(", which no item has (notifications have none)");
    if (found->second.size() > 1) return fail(", which several items have");
    const std::size_t place = found->second.front();
    if (place == at) return fail(", the item itself");
    if (place > at) return fail(", a later item");
    if (std::find(inputs.items.begin(), inputs.items.end(), place) == inputs.items.end()) inputs.items.push_back(place);
}

}  // namespace

std::variant<ArgumentNodes, json_rpc::Error> match_arguments(const FunctionRecord& function, const Json& params) {
    auto matched = params.is_object() ? by_name(function, params) : by_position(function, params);
    const auto* nodes = std::get_if<ArgumentNodes>(&matched);
    if (nodes == nullptr) return matched;
    const auto parameters = function.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if ((*nodes)[i] == nullptr && parameters[i].required) {
            return json_rpc::invalid_params(parameters[i].name, "a value", "nothing");
        }
    }
    return matched;
}

ArgumentsKey arguments_key(const ArgumentNodes& nodes, const codec::JsonSource& source, Digests digests) {
    ArgumentsKey key;
    for (const ValueSource::Node node : nodes) {
        if (node != nullptr) append_key(*static_cast<const Json*>(node), source, digests, key);
        key.text.push_back(';');
    }
    return key;
}

std::vector<BatchInputs> find_inputs(std::span<const json_rpc::Request* const> requests) {
    std::vector<BatchInputs> all(requests.size());
    std::optional<Places> places;  // made on demand: most batches have no references
    for (std::size_t i = 0; i < requests.size(); ++i) {
        if (requests[i] == nullptr) continue;
        codec::for_each_marked(requests[i]->params, [&](codec::Marker marker, const Json& place) {
            const Json* id = marker == codec::Marker::reference ? codec::item_in(*place.begin()) : nullptr;
            if (id == nullptr) return;
            if (!places) places = places_of(requests);
            add_input(*id, i, *places, all[i]);
        });
    }
    return all;
}

}  // namespace shared_tensor::runtime
