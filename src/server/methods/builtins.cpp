#include "server/methods/methods.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "runtime/functions/open_rpc.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor {

server::TensorParameter Codec<server::TensorParameter>::read(const ValueReader& reader) {
    reader.require(Kind::tensor, "tensor");
    (void)reader.tensor();
    return {static_cast<const codec::JsonSource&>(reader.source()).imported(reader.node())};
}

void Codec<server::TensorParameter>::schema(ValueWriter writer) {
    writer.object();
    writer.member("$ref").string("#/components/schemas/Tensor");
}

}  // namespace shared_tensor

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

std::string list_of(std::span<const std::string_view> names) {
    if (names.empty()) return "no parameters: there are none";
    std::string text = "one of the parameters that there are: ";
    for (const std::string_view name : names)
        text.append(name == names.front() ? "" : ", ").append(name);
    return text;
}

}  // namespace

std::vector<const Json*> match_parameters(std::span<const std::string_view> names, const Json& params) {
    if (params.is_array() && params.size() > names.size()) {
        const std::string most = std::to_string(names.size());
        throw Rejected(json_rpc::invalid_params(most, "at most " + most + " arguments", std::to_string(params.size())));
    }
    std::vector<const Json*> given(names.size(), nullptr);
    const auto give = [&](std::size_t place, const Json& value) {
        if (!value.is_null()) given[place] = &value;
    };
    if (params.is_array()) {
        for (std::size_t i = 0; i < params.size(); ++i)
            give(i, params[i]);
    } else if (params.is_object()) {
        for (const auto& [name, value] : params.items()) {
            const auto found = std::find(names.begin(), names.end(), name);
            if (found == names.end())
                throw Rejected(json_rpc::invalid_params(name, list_of(names), "an unknown parameter"));
            give(static_cast<std::size_t>(found - names.begin()), value);
        }
    }
    return given;
}

void reading_from(const codec::JsonSource& source, const std::function<void()>& act) {
    try {
        act();
    } catch (const codec::Unresolved& error) {
        throw Rejected(error.error());
    } catch (const InvalidValue& error) {
        if (source.rejection()) throw Rejected(*source.rejection());
        throw Rejected(json_rpc::invalid_params(error.path, error.expected, error.got));
    }
}

Json describe_parameter(std::string_view name, bool required, void (*schema)(ValueWriter)) {
    return {{"name", name}, {"required", required}, {"schema", runtime::written_schema(schema)}};
}

std::optional<std::string> owner_filter(const Principal& principal) {
    if (principal.admin) return std::nullopt;
    return principal.name;
}

void Builtins::insert(Description description, json_rpc::Json parameters,
                      std::function<Outcome(const BuiltinCall&)> run) {
    descriptions_.push_back({{"name", description.name},
                             {"summary", description.summary},
                             {"paramStructure", "either"},
                             {"params", std::move(parameters)},
                             {"result", {{"name", "result"}, {"schema", std::move(description.result)}}},
                             {"x-builtin", true}});
    methods_.insert_or_assign(description.name, Method{std::move(run), description.takes});
}

const Builtins::Method* Builtins::find(std::string_view name) const {
    const auto found = methods_.find(name);
    return found == methods_.end() ? nullptr : &found->second;
}

}  // namespace shared_tensor::server

namespace shared_tensor::server::schema {

using json_rpc::Json;

namespace {

constexpr std::int64_t kMaxRank = 64;

Json counts() { return {{"type", "array"}, {"maxItems", kMaxRank}, {"items", {{"type", "integer"}, {"minimum", 0}}}}; }
Json natural() { return {{"type", "integer"}, {"minimum", 0}}; }
Json text() { return {{"type", "string"}}; }
Json base64() { return {{"type", "string"}, {"contentEncoding", "base64"}}; }

/// An object with exactly these members, all of them required.
Json closed(Json properties) {
    Json required = Json::array();
    for (const auto& member : properties.items())
        required.push_back(member.key());
    return {{"type", "object"},
            {"properties", std::move(properties)},
            {"required", std::move(required)},
            {"additionalProperties", false}};
}

Json dtypes() {
    Json names = Json::array();
    for (std::size_t i = 0; i < tensor::kDTypes; ++i)
        names.push_back(tensor::name_of(static_cast<tensor::DType>(i)));
    return {{"type", "string"}, {"enum", std::move(names)}};
}

/// For each place of the elements: the members that are required then.
Json places() {
    static constexpr std::array kNeedTypeAndShape = {"base64", "body", "shm", "cuda_ipc", "url"};
    Json all = Json::array({Json{{"required", Json::array({"data"})}}});
    for (const char* place : kNeedTypeAndShape)
        all.push_back({{"required", Json::array({place, "dtype", "shape"})}});
    return all;
}

Json members() {
    return {
        {"dtype", dtypes()},
        {"shape", counts()},
        {"strides", counts()},
        {"device", {{"type", "string"}, {"default", "cpu"}, {"pattern", "^(cpu|cuda:[0-9A-Za-z-]{1,64})$"}}},
        {"lease", text()},
        {"data", {{"description", "Nested arrays as deep as the shape; a number for a tensor without dimensions."}}},
        {"base64", base64()},
        {"body", closed({{"offset", natural()}, {"size", natural()}})},
        {"shm", closed({{"segment", text()}, {"offset", natural()}, {"size", natural()}})},
        {"cuda_ipc", closed({{"handle", base64()},
                             {"offset", natural()},
                             {"size", natural()},
                             {"event", base64()},
                             {"generation", natural()}})},
        {"url", {{"type", "string"}, {"description", "Only in results. GET it to read the elements."}}}};
}

Json schema_of(Json given) { return given.is_string() ? Json{{"type", std::move(given)}} : given; }

}  // namespace

Json list_of(Json items) { return {{"type", "array"}, {"items", schema_of(std::move(items))}}; }
Json map_of(Json values) { return {{"type", "object"}, {"additionalProperties", schema_of(std::move(values))}}; }
Json tensor() { return {{"$ref", "#/components/schemas/Tensor"}}; }

Json object(std::initializer_list<Member> members) {
    Json properties = Json::object(), required = Json::array();
    for (const Member& member : members) {
        const bool may_be_left_out = member.name.ends_with('?');
        const std::string name(member.name.substr(0, member.name.size() - (may_be_left_out ? 1 : 0)));
        properties[name] = schema_of(member.schema);
        if (!may_be_left_out) required.push_back(name);
    }
    return {{"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}

Json tensor_component() {
    Json inner{{"type", "object"}, {"properties", members()}, {"anyOf", places()}, {"additionalProperties", false}};
    Json tensor{{"type", "object"},
                {"properties", {{"$tensor", std::move(inner)}}},
                {"required", Json::array({"$tensor"})},
                {"additionalProperties", false}};
    return {{"description",
             "A tensor. One of data, base64, body, shm, cuda_ipc and url says where its elements are. An argument may "
             "also be nested arrays of numbers."},
            {"anyOf", Json::array({std::move(tensor), {{"type", "array"}}})}};
}

}  // namespace shared_tensor::server::schema
