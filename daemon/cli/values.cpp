#include "cli/values.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/bytes/utf8.hpp"
#include "cli/commands.hpp"
#include "protocol/codec/json_source.hpp"
#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::cli {

namespace {

codec::Json handle_of(const ObjectPointer& object) { return {{"id", object->id}, {"type", object->type}}; }

/// For handles typed by the user, {"$object": {"id": "o-..."}}. They refer to objects and do not own them.
class TypedHandles final : public codec::References {
public:
    std::shared_ptr<const codec::Value> value(const codec::Json&) override {
        throw InvalidValue({}, "a value", "a reference ($ref), which the command line cannot send");
    }
    ObjectPointer object(const codec::Json& handle) override {
        if (!handle.is_object() || !handle.contains("id") || !handle["id"].is_string())
            throw InvalidValue({}, R"({"id": "o-..."} behind $object)", "something else");
        return std::make_shared<const ObjectCell>(
            ObjectCell{handle.value("type", std::string()), handle["id"].get<std::string>()});
    }
};

}  // namespace

Dynamic from_json(const codec::Json& json) {
    tensor::TensorTransfer transfer;
    TypedHandles handles;
    const codec::JsonSource source(transfer, &handles);
    return tensor::read_any(ValueReader(source, codec::JsonSource::node(json)), Access::concurrent);
}

codec::Json to_json(const Dynamic& value) {
    tensor::TensorTransfer transfer;
    return codec::encode(value.value, transfer, &handle_of);
}

Dynamic from_tensor(codec::TensorPointer tensor) { return Dynamic{{codec::Json{{"$tensor", 0}}, {std::move(tensor)}}}; }

codec::TensorPointer only_tensor(const Dynamic& value) {
    const codec::Json& json = value.value.json;
    const auto& tensors = value.value.tensors;
    const bool is_tensor = tensors.size() == 1 && json.is_object() && json.contains("$tensor");
    return is_tensor ? tensors.front() : nullptr;
}

std::optional<tensor::TensorMap> tensors_of(const Dynamic& value) {
    if (auto only = only_tensor(value)) return tensor::TensorMap{{"tensor", std::move(only)}};
    const codec::Json& json = value.value.json;
    if (!json.is_object()) return std::nullopt;
    const codec::Json& members = json.size() == 1 && json.contains("$literal") ? json["$literal"] : json;
    tensor::TensorMap tensors;
    for (const auto& [name, member] : members.items()) {
        if (!member.is_object() || member.size() != 1 || !member.contains("$tensor")) return std::nullopt;
        tensors.emplace(name, value.value.tensors.at(member["$tensor"].get<std::size_t>()));
    }
    return tensors;
}

namespace {

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// The name in "factor=3"; empty if the word is a plain value.
std::string_view name_in(std::string_view word) {
    const auto equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0) return {};
    const auto name = word.substr(0, equals);
    const bool digit_first = name.front() >= '0' && name.front() <= '9';
    return !digit_first && std::all_of(name.begin(), name.end(), is_name_character) ? name : std::string_view();
}

Dynamic checked(const codec::Json& json, const std::string& where) {
    try {
        return from_json(json);
    } catch (const InvalidValue& error) {
        throw UsageError(where + ": " + error.what());
    }
}

Dynamic read_json(const std::string& text, const std::string& where) {
    const auto parsed = json_rpc::parse_json(text);
    if (const auto* error = std::get_if<json_rpc::JsonTextError>(&parsed))
        throw UsageError(where + ": no JSON: " + error->detail);
    return checked(std::get<codec::Json>(parsed), where);
}

bool is_meant_as_json(const std::string& word) {
    return !word.empty() && std::string_view("{[\"").find(word.front()) != std::string_view::npos;
}

}  // namespace

Dynamic read_value(const std::string& word) {
    if (!is_utf8(word)) throw UsageError(word + ": arguments are UTF-8");
    if (word.starts_with('@')) {
        const std::string path = word.substr(1);
        if (path.ends_with(".npy")) return read_tensor(path);
        if (path == "-" || path.ends_with(".json")) return read_json(read_file(path), path);
        throw UsageError(word + ": @FILE must be a .npy or .json file; a string that starts with @ is '\"" + word +
                         "\"'");
    }
    auto parsed = json_rpc::parse_json(word);
    if (const auto* json = std::get_if<codec::Json>(&parsed)) return checked(*json, word);
    if (is_meant_as_json(word))
        throw UsageError(word + ": no JSON: " + std::get<json_rpc::JsonTextError>(parsed).detail);
    return Dynamic{{codec::Json(word), {}}};
}

TypedArguments::TypedArguments(const std::vector<std::string>& words) {
    by_name_ = !words.empty() && !name_in(words.front()).empty();
    for (const auto& word : words) {
        const std::string name(name_in(word));
        if (name.empty() == by_name_) {
            throw UsageError("arguments go by position or all by name=value; a string that holds = is '\"" + word +
                             "\"'");
        }
        const bool twice =
            by_name_ && std::any_of(values_.begin(), values_.end(), [&](const auto& one) { return one.first == name; });
        if (twice) throw UsageError("the argument " + name + " is given twice");
        values_.emplace_back(name, read_value(by_name_ ? word.substr(name.size() + 1) : word));
    }
}

void TypedArguments::write(ValueWriter params) const {
    if (by_name_) {
        params.object();
    } else {
        params.array(values_.size());
    }
    for (const auto& [name, value] : values_) {
        Codec<Dynamic>::write(by_name_ ? params.member(name) : params.append(), value);
    }
}

}  // namespace shared_tensor::cli
