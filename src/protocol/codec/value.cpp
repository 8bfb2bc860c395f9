#include "protocol/codec/value.hpp"

#include <charconv>
#include <cmath>
#include <exception>
#include <iterator>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/bytes/utf8.hpp"

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

void require_utf8(std::string_view text) {
    if (!is_utf8(text)) throw std::invalid_argument("a text is not UTF-8: send bytes as shared_tensor::Bytes");
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

void LentForCall::add(std::vector<Memory> memory) {
    constexpr std::size_t kMany = 256;  // a stream adds any number of them, and most expire soon
    memory_.with([&](std::vector<Memory>& held) {
        if (held.size() >= kMany) std::erase_if(held, [](const Memory& one) { return one.expired(); });
        held.insert(held.end(), std::make_move_iterator(memory.begin()), std::make_move_iterator(memory.end()));
    });
}

std::vector<std::shared_ptr<LentMemory>> LentForCall::in_use() const {
    std::vector<std::shared_ptr<LentMemory>> found;
    memory_.with([&](const std::vector<Memory>& held) {
        for (const Memory& one : held) {
            if (auto memory = one.lock()) found.push_back(std::move(memory));
        }
    });
    return found;
}

std::uint64_t LentForCall::take_over() const {
    std::uint64_t copied = 0;
    std::exception_ptr failed;  // the other tensors are taken over even if one fails
    for (const auto& memory : in_use()) {
        try {
            copied += memory->take_over();
        } catch (const std::bad_alloc&) {
            failed = std::current_exception();
        }
    }
    if (failed) std::rethrow_exception(failed);
    return copied;
}

TensorPointer TensorPort::import(const Json&) { throw InvalidValue({}, "a value without tensors", "a tensor"); }
TensorPointer TensorPort::wrap(const TensorRef&) { return nullptr; }
void TensorPort::describe(const TensorPointer&, json_rpc::LongText& out) { out += "null"; }
void TensorPort::take_over(LentMemory& memory) { memory.take_over(); }
std::shared_ptr<const void> TensorPort::hold(std::uint64_t) { return nullptr; }

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

ValueBytes memory_of(const Value& value) {
    ValueBytes total{json_bytes(value.json), 0};
    for (const auto& tensor : value.tensors)
        (tensor->on_device() ? total.device : total.host) += tensor->bytes();
    return total;
}

void JsonSink::null(Node node) { at(node) = nullptr; }
void JsonSink::boolean(Node node, bool value) { at(node) = value; }
void JsonSink::integer(Node node, std::int64_t value) { at(node) = value; }
void JsonSink::unsigned_integer(Node node, std::uint64_t value) { at(node) = value; }
void JsonSink::number(Node node, double value) { at(node) = finite_or_name(value, value); }
void JsonSink::number(Node node, float value) { at(node) = finite_or_name(value, shortest(value)); }
void JsonSink::string(Node node, std::string_view value) {
    require_utf8(value);
    at(node) = value;
}

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
    require_utf8(key);
    Json& members = is_wrapped ? *object.begin() : object;
    const auto [added, is_new] = members.emplace(std::string(key), nullptr);
    if (!is_new) throw std::invalid_argument("the name \"" + std::string(key) + "\" is given twice");
    return &*added;
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

json_rpc::SpecialPrinter::Did PlaceholderPrinter::print(const Json& object, json_rpc::LongText& out) {
    const Marker marker = marker_of(object);
    if (marker == Marker::none || marker == Marker::reference) return Did::nothing;
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
    json_rpc::print_json(value.json, text, &printer);
    return Json::parse(text.take_whole());
}

Marker marker_of(const Json& json) {
    if (!json.is_object() || json.size() != 1) return Marker::none;
    const std::string& key = json.begin().key();
    if (key == "$tensor") return Marker::tensor;
    if (key == "$object") return Marker::object;
    if (key == "$ref") return Marker::reference;
    return key == "$literal" ? Marker::literal : Marker::none;
}

void for_each_marked(const Json& json, const std::function<void(Marker, const Json&)>& found) {
    if (!json.is_structured()) return;
    const Marker marker = marker_of(json);
    if (marker != Marker::none && marker != Marker::literal) return found(marker, json);
    const Json& plain = marker == Marker::literal ? json.begin().value() : json;
    if (!plain.is_structured()) return;
    for (const Json& member : plain)
        for_each_marked(member, found);
}

const Json* item_in(const Json& name) {
    if (!name.is_object() || name.size() != 1 || name.begin().key() != "item") return nullptr;
    return &name.begin().value();
}

}  // namespace shared_tensor::codec
