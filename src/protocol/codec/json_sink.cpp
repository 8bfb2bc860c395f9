#include "protocol/codec/json_sink.hpp"

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace shared_tensor::codec {

namespace {

Json& at(ValueSink::Node node) { return *static_cast<Json*>(node); }

template <class T>
Json finite_or_name(T value, double as_double) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return as_double;
}

/// Makes `node` the object {key: value}, without the cost of an initialiser list.
void wrap(Json& node, const char* key, Json value) {
    node = Json::object();
    node.get_ref<Json::object_t&>().emplace(key, std::move(value));
}

/// The double with the same shortest text as the float: 0.1f becomes 0.1, not 0.10000000149011612.
double shortest(float value) {
    if (!std::isfinite(value)) return 0;
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    double result = 0;
    std::from_chars(text, end, result);
    return result;
}

}  // namespace

void JsonSink::null(Node node) { at(node) = nullptr; }
void JsonSink::boolean(Node node, bool value) { at(node) = value; }
void JsonSink::integer(Node node, std::int64_t value) { at(node) = value; }
void JsonSink::unsigned_integer(Node node, std::uint64_t value) { at(node) = value; }
void JsonSink::number(Node node, double value) { at(node) = finite_or_name(value, value); }
void JsonSink::number(Node node, float value) { at(node) = finite_or_name(value, shortest(value)); }
void JsonSink::string(Node node, std::string_view value) { at(node) = value; }

void JsonSink::array(Node node, std::size_t size_hint) {
    at(node) = Json::array();
    at(node).get_ref<Json::array_t&>().reserve(size_hint);
}

ValueSink::Node JsonSink::append(Node node) {
    auto& elements = at(node).get_ref<Json::array_t&>();
    return &elements.emplace_back(nullptr);
}

void JsonSink::object(Node node) { at(node) = Json::object(); }

ValueSink::Node JsonSink::member(Node node, std::string_view key) {
    Json& object = at(node);
    // An unwrapped object has no key with '$', so its form alone decides. Nothing has to be remembered, and a list of a
    // million wrapped objects costs no more than other lists.
    bool is_wrapped = marker_of(object) == Marker::literal;
    if (!is_wrapped && key.starts_with('$')) {
        Json members = std::move(object);
        wrap(object, "$literal", std::move(members));
        is_wrapped = true;
    }
    return &(is_wrapped ? *object.begin() : object)[std::string(key)];
}

void JsonSink::tensor(Node node, const TensorRef& value) {
    const std::size_t index = value_->tensors.size();
    value_->tensors.push_back(port_->wrap(value));
    wrap(at(node), "$tensor", index);
}

void JsonSink::handle(Node node, const ObjectPointer& value) {
    const std::size_t index = value_->objects.size();
    value_->objects.push_back(value);
    wrap(at(node), "$object", index);
}

void JsonSink::reference_to_item(Node node, std::uint64_t id) { refer(node, {{"item", id}}); }
void JsonSink::reference_to_name(Node node, std::string_view name) { refer(node, name); }

void JsonSink::refer(Node node, Json to) const {
    if (references_ == References::reject)
        throw std::logic_error("a reference is an argument of a call, not a part of a result");
    wrap(at(node), "$ref", std::move(to));
}

}  // namespace shared_tensor::codec
