#include "torch/call_spec.hpp"

#include <nlohmann/json.hpp>

#include <stdexcept>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/torch.hpp>

namespace shared_tensor::models {

namespace {

using Json = nlohmann::json;

CallSpec spec_of(const Json& node) {
    const Json& type = node.at("type");
    if (type.is_null()) return {};
    CallSpec spec;
    const auto name = type.get<std::string>();
    if (name == "builtins.dict") {
        spec.kind = CallSpec::Kind::object;
        for (const Json& key : Json::parse(node.at("context").get<std::string>()))
            spec.keys.push_back(key.get<std::string>());
    } else if (name == "builtins.tuple" || name == "builtins.list") {
        spec.kind = CallSpec::Kind::list;
    } else {
        throw std::invalid_argument("a value of the type " + name);
    }
    for (const Json& child : node.at("children_spec"))
        spec.children.push_back(spec_of(child));
    if (spec.kind == CallSpec::Kind::object && spec.keys.size() != spec.children.size())
        throw std::invalid_argument("a dict whose keys are not told");
    return spec;
}

}  // namespace

CallSpec parse_call_spec(const std::string& json) {
    try {
        return spec_of(Json::parse(json).at(1));  // [version, spec]
    } catch (const Json::exception& error) {
        throw std::invalid_argument(std::string("a form of arguments that is not known: ") + error.what());
    }
}

void read_tensors(const ValueReader& reader, const CallSpec& spec, std::vector<at::Tensor>& tensors) {
    switch (spec.kind) {
        case CallSpec::Kind::tensor: tensors.push_back(Codec<at::Tensor>::read(reader).contiguous()); return;
        case CallSpec::Kind::list:
            if (reader.kind() != Kind::array || reader.size() != spec.children.size())
                reader.fail("array of " + std::to_string(spec.children.size()));
            for (std::size_t i = 0; i < spec.children.size(); ++i)
                read_tensors(reader.element(i), spec.children[i], tensors);
            return;
        case CallSpec::Kind::object:
            reader.require(Kind::object, "object");
            for (std::size_t i = 0; i < spec.children.size(); ++i) {
                if (!reader.has(spec.keys[i])) reader.fail("object with \"" + spec.keys[i] + '"');
                read_tensors(reader.member(spec.keys[i]), spec.children[i], tensors);
            }
    }
}

void write_tensors(ValueWriter writer, const CallSpec& spec, const std::vector<at::Tensor>& tensors,
                   std::size_t& next) {
    switch (spec.kind) {
        case CallSpec::Kind::tensor: return writer.tensor(tensors.at(next++));
        case CallSpec::Kind::list:
            writer.array(spec.children.size());
            for (const CallSpec& child : spec.children)
                write_tensors(writer.append(), child, tensors, next);
            return;
        case CallSpec::Kind::object:
            writer.object();
            for (std::size_t i = 0; i < spec.children.size(); ++i)
                write_tensors(writer.member(spec.keys[i]), spec.children[i], tensors, next);
    }
}

void write_spec_schema(ValueWriter writer, const CallSpec& spec) {
    switch (spec.kind) {
        case CallSpec::Kind::tensor: return Codec<at::Tensor>::schema(writer);
        case CallSpec::Kind::list: {
            detail::write_type(writer, "array");
            ValueWriter items = writer.member("prefixItems");
            items.array(spec.children.size());
            for (const CallSpec& child : spec.children)
                write_spec_schema(items.append(), child);
            return;
        }
        case CallSpec::Kind::object: {
            detail::write_type(writer, "object");
            ValueWriter properties = writer.member("properties");
            properties.object();
            for (std::size_t i = 0; i < spec.children.size(); ++i)
                write_spec_schema(properties.member(spec.keys[i]), spec.children[i]);
        }
    }
}

std::size_t count_tensors(const CallSpec& spec) {
    if (spec.kind == CallSpec::Kind::tensor) return 1;
    std::size_t sum = 0;
    for (const CallSpec& child : spec.children)
        sum += count_tensors(child);
    return sum;
}

}  // namespace shared_tensor::models
