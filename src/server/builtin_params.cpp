#include "server/builtin_params.hpp"

#include <algorithm>

#include "json_rpc/json_text.hpp"

namespace shared_tensor::server {

namespace {

using json_rpc::Json;

std::string shown(const Json& json) {
    constexpr std::size_t kShown = 60;
    std::string text;
    json_rpc::print_json(json, text);
    return text.size() <= kShown ? text : std::string(json.type_name());
}

[[noreturn]] void refuse(std::string_view name, std::string_view expected, const std::string& got) {
    throw BadParameter(json_rpc::invalid_params(name, expected, got));
}

std::string list_of(const std::vector<std::string_view>& names) {
    if (names.empty()) return "no parameters: there are none";
    std::string text = "one of the parameters that there are: ";
    for (const std::string_view name : names)
        text.append(name == names.front() ? "" : ", ").append(name);
    return text;
}

}  // namespace

BuiltinParams::BuiltinParams(const Json& params, std::initializer_list<std::string_view> names)
    : params_(&params), names_(names) {
    if (params.is_array() && params.size() > names_.size()) {
        refuse(std::to_string(names_.size()), "at most " + std::to_string(names_.size()) + " arguments",
               std::to_string(params.size()));
    }
    if (!params.is_object()) return;
    for (const auto& [name, value] : params.items()) {
        if (std::find(names_.begin(), names_.end(), name) == names_.end())
            refuse(name, list_of(names_), "an unknown parameter");
    }
}

const Json* BuiltinParams::find(std::string_view name) const {
    const Json* found = nullptr;
    if (params_->is_object()) {
        const auto member = params_->find(name);
        if (member != params_->end()) found = &*member;
    } else {
        const auto index = static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
        if (index < params_->size() && params_->is_array()) found = &(*params_)[index];
    }
    return found != nullptr && found->is_null() ? nullptr : found;
}

std::string BuiltinParams::text(std::string_view name) const {
    auto value = optional_text(name);
    if (!value) refuse(name, "a string: the parameter is required", "nothing");
    return std::move(*value);
}

std::optional<std::string> BuiltinParams::optional_text(std::string_view name) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) refuse(name, "string", shown(*value));
    return value->get<std::string>();
}

std::vector<std::string> BuiltinParams::texts(std::string_view name, std::size_t most) const {
    const Json* list = find(name);
    const std::string expected = "array of at most " + std::to_string(most) + " strings";
    if (list == nullptr) refuse(name, expected, "nothing");
    if (!list->is_array() || list->size() > most) refuse(name, expected, shown(*list));
    std::vector<std::string> result;
    result.reserve(list->size());
    for (const Json& one : *list) {
        if (!one.is_string()) refuse(name, expected, shown(one));
        result.push_back(one.get<std::string>());
    }
    return result;
}

std::optional<std::int64_t> BuiltinParams::optional_integer(std::string_view name, std::int64_t least,
                                                            std::int64_t most) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    const bool fits =
        value->is_number_integer() &&
        !(value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) &&
        value->get<std::int64_t>() >= least && value->get<std::int64_t>() <= most;
    if (!fits) refuse(name, "integer from " + std::to_string(least) + " to " + std::to_string(most), shown(*value));
    return value->get<std::int64_t>();
}

bool BuiltinParams::flag(std::string_view name) const {
    const Json* value = find(name);
    if (value == nullptr) return false;
    if (!value->is_boolean()) refuse(name, "true or false", shown(*value));
    return value->get<bool>();
}

std::optional<std::chrono::milliseconds> BuiltinParams::optional_ms(std::string_view name,
                                                                    std::chrono::milliseconds most) const {
    const auto value = optional_integer(name, 0, most.count());
    if (!value) return std::nullopt;
    return std::chrono::milliseconds(*value);
}

}  // namespace shared_tensor::server
