#include "cli/values.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "cli/commands.hpp"
#include "protocol/codec/json_source.hpp"
#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "tensor/handle.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::cli {

namespace {

/// For tensors in this process: {"$tensor": i} is tensor i of a value.
class LocalPort final : public codec::TensorPort {
public:
    explicit LocalPort(const codec::Value& value) : value_(&value) {}
    codec::TensorPointer import(const codec::Json& index) override {
        return value_->tensors.at(index.get<std::size_t>());
    }
    codec::TensorPointer wrap(const TensorRef& tensor) override { return tensor::make_handle(tensor); }
    void describe(const codec::TensorPointer&, json_rpc::LongText& out) override { out += "null"; }

private:
    const codec::Value* value_;
};

codec::Json handle_of(const ObjectPointer& object) { return {{"id", object->id}, {"type", object->type}}; }

/// For objects in this process: {"$object": i} is object i of a value.
class OwnHandles final : public codec::References {
public:
    explicit OwnHandles(const codec::Value& value) : value_(&value) {}
    std::shared_ptr<const codec::Value> value(const codec::Json&) override {
        throw InvalidValue({}, "a value", "a reference");
    }
    ObjectPointer object(const codec::Json& index) override { return value_->objects.at(index.get<std::size_t>()); }

private:
    const codec::Value* value_;
};

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

void copy(const ValueReader& reader, ValueWriter writer);

void copy_array(const ValueReader& reader, ValueWriter writer) {
    writer.array(reader.size());
    for (std::size_t i = 0; i < reader.size(); ++i)
        copy(reader.element(i), writer.append());
}

void copy_object(const ValueReader& reader, ValueWriter writer) {
    writer.object();
    reader.each_member([&](std::string_view key, const ValueReader& member) { copy(member, writer.member(key)); });
}

void copy(const ValueReader& reader, ValueWriter writer) {
    switch (reader.kind()) {
        case Kind::null: return writer.null();
        case Kind::boolean: return writer.boolean(reader.boolean());
        case Kind::integer: return writer.integer(reader.integer());
        case Kind::unsigned_integer: return writer.unsigned_integer(reader.unsigned_integer());
        case Kind::number: return writer.number(reader.number());
        case Kind::string: return writer.string(reader.string());
        case Kind::array: return copy_array(reader, writer);
        case Kind::object: return copy_object(reader, writer);
        case Kind::tensor: return writer.tensor(reader.tensor());
        case Kind::handle: return writer.handle(reader.handle());
        case Kind::unknown: reader.fail("value");
    }
}

Dynamic copy_of(const ValueReader& reader) {
    Dynamic result;
    LocalPort port(result.value);
    codec::JsonSink sink(result.value, port);
    copy(reader, ValueWriter(sink, sink.root()));
    return result;
}

}  // namespace

Dynamic from_json(const codec::Json& json) {
    tensor::TensorTransfer transfer;
    TypedHandles handles;
    const codec::JsonSource source(transfer, &handles);
    return copy_of(ValueReader(source, codec::JsonSource::node(json)));
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

namespace shared_tensor {

cli::Dynamic Codec<cli::Dynamic>::read(const ValueReader& reader) { return cli::copy_of(reader); }

void Codec<cli::Dynamic>::write(ValueWriter writer, const cli::Dynamic& value) {
    cli::LocalPort port(value.value);
    cli::OwnHandles handles(value.value);
    const codec::JsonSource source(port, &handles);
    cli::copy(ValueReader(source, codec::JsonSource::node(value.value.json)), writer);
}

}  // namespace shared_tensor
