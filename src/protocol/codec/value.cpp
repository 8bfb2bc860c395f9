#include "protocol/codec/value.hpp"

#include <stdexcept>

#include "protocol/codec/lent_memory.hpp"

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

}  // namespace

void TensorPort::take_over(LentMemory& memory) { memory.take_over(); }

ValueBytes memory_of(const Value& value) {
    ValueBytes total{json_bytes(value.json), 0};
    for (const auto& tensor : value.tensors)
        (tensor->on_device() ? total.device : total.host) += tensor->bytes();
    return total;
}

json_rpc::SpecialPrinter::Did PlaceholderPrinter::print(const Json& object, json_rpc::LongText& out) {
    const Marker marker = marker_of(object);
    if (marker == Marker::none) return Did::nothing;
    if (marker == Marker::literal) return Did::wrapper;
    const auto index = object.begin().value().get<std::size_t>();
    if (marker == Marker::tensor) {
        out += R"({"$tensor":)";
        port_->describe(value_->tensors.at(index), out);
    } else {
        if (!*describe_) throw std::logic_error("an object where no reader can have a handle of it");
        out += R"({"$object":)";
        json_rpc::print_json((*describe_)(value_->objects.at(index)), out);
    }
    out += '}';
    return Did::all;
}

Json encode(const Value& value, TensorPort& port, const DescribeObject& describe) {
    if (value.is_plain()) return value.json;
    PlaceholderPrinter printer(value, port, describe);
    json_rpc::LongText text;
    json_rpc::print_json(value.json, printer, text);
    return Json::parse(text.take_whole());
}

void for_each_placeholder(const Json& json, const std::function<void(const Json&)>& found) {
    if (!json.is_structured()) return;
    const Marker marker = marker_of(json);
    if (marker == Marker::tensor || marker == Marker::object) return found(json);
    for (const auto& member : marker == Marker::literal ? json.begin().value() : json)
        for_each_placeholder(member, found);
}

}  // namespace shared_tensor::codec
