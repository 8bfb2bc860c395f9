#include "protocol/codec/json_source.hpp"

#include "base/bytes/ids.hpp"

namespace shared_tensor::codec {

namespace {

/// The object with the members of a plain object: the inner one if it is wrapped in "$literal".
const Json& plain(const Json& json) {
    return marker_of(json) == Marker::literal && json.begin()->is_object() ? *json.begin() : json;
}

/// Whether an object has a key that starts with '$'. Keys are sorted.
bool has_dollar_key(const Json& json) {
    const auto& members = json.get_ref<const Json::object_t&>();
    const auto first = members.lower_bound("$");
    return first != members.end() && first->first.starts_with('$');
}

Kind object_kind(const Json& json) {
    switch (marker_of(json)) {
        case Marker::tensor: return Kind::tensor;
        case Marker::object: return Kind::handle;
        case Marker::literal: return json.begin()->is_object() ? Kind::object : Kind::unknown;
        default: return has_dollar_key(json) ? Kind::unknown : Kind::object;
    }
}

/// A short prefix of a text, never cut inside a character: it goes into a response, which is UTF-8.
std::string quoted(const std::string& text) {
    constexpr std::size_t kShown = 40;
    const Json shown = shortened(text, kShown);
    return shown.dump(-1, ' ', false, Json::error_handler_t::replace) + (text.size() > kShown ? "..." : "");
}

}  // namespace

/// Keeps the error of a reference that cannot be resolved. The exception that passes through the user's codecs tells
/// less.
template <class Resolve>
auto JsonSource::resolved(Resolve resolve) const {
    try {
        return resolve();
    } catch (const Unresolved& error) {
        if (!rejection_) rejection_ = error.error();
        throw InvalidValue({}, "a value that is there", error.error().message);
    }
}

const Json& JsonSource::at(Node node) const {
    const Json& json = *static_cast<const Json*>(node);
    const bool is_reference = references_ != nullptr && marker_of(json) == Marker::reference;
    return is_reference ? follow(node, *json.begin()) : json;
}

const Json& JsonSource::follow(Node node, const Json& name) const {
    if (const auto known = followed_.find(node); known != followed_.end()) return known->second->json;
    return keep(node, resolved([&] { return references_->value(name); }));
}

ValueSource::Node JsonSource::hold(std::shared_ptr<const Value> value) {
    const Json& json = value->json;
    return &keep(&json, std::move(value));
}

/// Registers the tensors and objects of a value by their JSON nodes. So input from outside cannot pose as one.
const Json& JsonSource::keep(Node node, std::shared_ptr<const Value> value) const {
    if (!value->is_plain()) {
        for_each_marked(value->json, [&](Marker marker, const Json& place) {
            const auto index = place.begin()->get<std::size_t>();
            if (marker == Marker::tensor) tensors_.emplace(&place, value->tensors.at(index));
            if (marker == Marker::object) objects_.emplace(&place, value->objects.at(index));
        });
    }
    return followed_.emplace(node, std::move(value)).first->second->json;
}

Kind JsonSource::kind(Node node) const {
    switch (const Json& json = at(node); json.type()) {
        case Json::value_t::null: return Kind::null;
        case Json::value_t::boolean: return Kind::boolean;
        case Json::value_t::number_integer: return Kind::integer;
        case Json::value_t::number_unsigned: return Kind::unsigned_integer;
        case Json::value_t::number_float: return Kind::number;
        case Json::value_t::string: return Kind::string;
        case Json::value_t::array: return Kind::array;
        case Json::value_t::object: return object_kind(json);
        default: return Kind::unknown;
    }
}

bool JsonSource::boolean(Node node) const { return at(node).get<bool>(); }
std::int64_t JsonSource::integer(Node node) const { return at(node).get<std::int64_t>(); }
std::uint64_t JsonSource::unsigned_integer(Node node) const { return at(node).get<std::uint64_t>(); }
double JsonSource::number(Node node) const { return at(node).get<double>(); }
std::string_view JsonSource::string(Node node) const { return at(node).get_ref<const std::string&>(); }
std::size_t JsonSource::size(Node node) const { return plain(at(node)).size(); }
ValueSource::Node JsonSource::element(Node node, std::size_t index) const { return &at(node)[index]; }

ValueSource::Node JsonSource::member(Node node, std::string_view key) const {
    const Json& object = plain(at(node));
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
}

void JsonSource::each_member(Node node, const std::function<void(std::string_view, Node)>& visit) const {
    for (const auto& [key, value] : plain(at(node)).items())
        visit(key, &value);
}

/// Imports nested arrays of numbers.
TensorPointer JsonSource::import_lists(const Json& lists) const {
    const bool is_argument = placement_.has_value();
    if (!is_argument) throw InvalidValue({}, "tensor", described(lists));
    constexpr std::string_view kMember = "data";
    try {
        return port_->import(Json{{kMember, lists}});
    } catch (InvalidValue& error) {
        const std::string inside = error.path.substr(error.path.starts_with(kMember) ? kMember.size() : 0);
        throw InvalidValue(inside, error.expected, error.got);
    }
}

const TensorRef& JsonSource::tensor(Node node) const {
    const Json& json = at(node);
    TensorPointer handle = imported(node);
    if (handle == nullptr) {
        handle = json.is_array() ? import_lists(json) : port_->import(*json.begin());
        tensors_.emplace(&json, handle);
    }
    return handle->tensor();
}

TensorRef JsonSource::plain_tensor(Node node) const {
    const TensorRef& as_it_came = tensor(node);
    const bool is_argument = placement_.has_value();
    return is_argument && !placement_->device.starts_with("cuda") ? port_->in_host_memory(as_it_came) : as_it_came;
}

TensorPointer JsonSource::imported(Node node) const {
    const auto found = tensors_.find(&at(node));
    return found == tensors_.end() ? nullptr : found->second;
}

ObjectPointer JsonSource::handle(Node node, Access access) const {
    const Json& json = at(node);
    const auto inner = objects_.find(&json);
    ObjectPointer object = inner != objects_.end() ? inner->second : resolved([&] {
        if (references_ == nullptr) throw Unresolved(json_rpc::invalid_params("no object can be named here"));
        return references_->object(*json.begin());
    });
    uses_.emplace_back(object, access);
    return object;
}

std::string JsonSource::describe(Node node) const {
    switch (kind(node)) {
        case Kind::tensor: return "tensor";
        case Kind::handle: return "handle of an object";
        case Kind::unknown: return "object with a key that starts with $ (wrap a plain one: {\"$literal\": {...}})";
        default: return described(at(node));
    }
}

std::string described(const Json& json) {
    if (json.is_string()) return "string " + quoted(json.get_ref<const std::string&>());
    if (json.is_array()) return "array of " + std::to_string(json.size());
    if (json.is_object()) return "object";
    return json.is_number() ? "number " + json.dump() : json.dump();
}

}  // namespace shared_tensor::codec
