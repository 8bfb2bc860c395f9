#include "server/methods/method_schema.hpp"

#include <array>
#include <string>
#include <utility>

#include "tensor/layout.hpp"

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
    return {{"type", "object"},
            {"description", "A tensor. One of data, base64, body, shm, cuda_ipc and url says where its elements are."},
            {"properties", {{"$tensor", std::move(inner)}}},
            {"required", Json::array({"$tensor"})},
            {"additionalProperties", false}};
}

}  // namespace shared_tensor::server::schema
