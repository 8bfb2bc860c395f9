#include "codec/value.hpp"

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

void replace_placeholders(Json& json, const Value& value, TensorPort& port);

void replace_in_members(Json& object, const Value& value, TensorPort& port) {
    for (auto& member : object)
        replace_placeholders(member, value, port);
}

void replace_placeholders(Json& json, const Value& value, TensorPort& port) {
    if (json.is_array()) return replace_in_members(json, value, port);
    if (!json.is_object()) return;
    if (json.size() == 1) {
        const auto only = json.begin();
        if (only.key() == "$tensor") {
            only.value() = port.describe(value.tensors.at(only.value().get<std::size_t>()));
            return;
        }
        if (only.key() == "$literal") return replace_in_members(only.value(), value, port);
    }
    replace_in_members(json, value, port);
}

}  // namespace

ValueBytes memory_of(const Value& value) {
    ValueBytes total{json_bytes(value.json), 0};
    for (const auto& tensor : value.tensors)
        (tensor->on_device() ? total.device : total.host) += tensor->bytes();
    return total;
}

Json encode(const Value& value, TensorPort& port) {
    Json json = value.json;
    if (!value.tensors.empty()) replace_placeholders(json, value, port);
    return json;
}

}  // namespace shared_tensor::codec
