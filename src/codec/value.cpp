#include "codec/value.hpp"

#include <stdexcept>

namespace shared_tensor::codec {

namespace {

std::uint64_t json_bytes(const Json& json) {
    std::uint64_t bytes = sizeof(Json);
    if (json.is_string()) return bytes + json.get_ref<const std::string&>().capacity();
    if (json.is_array()) {
        for (const auto& element : json)
            bytes += json_bytes(element);
    } else if (json.is_object()) {
        constexpr std::uint64_t kTreeNode = 64;
        for (const auto& [key, member] : json.items())
            bytes += kTreeNode + key.size() + json_bytes(member);
    }
    return bytes;
}

enum class Marker { none, tensor, object, literal };

Marker marker_of(const Json& json) {
    if (!json.is_object() || json.size() != 1) return Marker::none;
    const std::string& key = json.begin().key();
    if (key == "$tensor") return Marker::tensor;
    if (key == "$object") return Marker::object;
    return key == "$literal" ? Marker::literal : Marker::none;
}

/// `J` is Json or const Json; `found(place, marker)`.
template <class J, class Found>
void visit_placeholders(J& json, const Found& found) {
    if (!json.is_structured()) return;
    const Marker marker = marker_of(json);
    if (marker == Marker::tensor || marker == Marker::object) return found(json, marker);
    for (auto& member : marker == Marker::literal ? json.begin().value() : json)
        visit_placeholders(member, found);
}

}  // namespace

ValueBytes memory_of(const Value& value) {
    ValueBytes total{json_bytes(value.json), 0};
    for (const auto& tensor : value.tensors)
        (tensor->on_device() ? total.device : total.host) += tensor->bytes();
    return total;
}

Json encode(const Value& value, TensorPort& port, const DescribeObject& describe) {
    Json json = value.json;
    if (value.is_plain()) return json;
    visit_placeholders(json, [&](Json& place, Marker marker) {
        Json& content = place.begin().value();
        const auto index = content.get<std::size_t>();
        if (marker == Marker::tensor) {
            content = port.describe(value.tensors.at(index));
        } else if (describe) {
            content = describe(value.objects.at(index));
        } else {
            throw std::logic_error("an object where no reader can have a handle of it");
        }
    });
    return json;
}

void for_each_placeholder(const Json& json, const std::function<void(const Json&)>& found) {
    visit_placeholders(json, [&](const Json& place, Marker) { found(place); });
}

}  // namespace shared_tensor::codec
