#include "runtime/functions/batch_inputs.hpp"

#include <algorithm>
#include <map>

#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::runtime {

namespace {

using json_rpc::Json;

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
