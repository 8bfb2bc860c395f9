#include "server/option_reading.hpp"

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "base/bytes/field_list.hpp"
#include "base/bytes/nearest_name.hpp"
#include "base/bytes/utf8.hpp"

namespace shared_tensor::server {

namespace {

template <std::size_t N>
std::string in_units(std::size_t value, const std::array<std::pair<std::size_t, const char*>, N>& units) {
    for (const auto& [unit, name] : units) {
        if (value > 0 && value % unit == 0) return std::to_string(value / unit) + name;
    }
    return std::to_string(value);
}

struct DefaultText {
    std::string operator()(Option::Text value) const { return *value; }
    std::string operator()(Option::List) const { return {}; }
    std::string operator()(Option::Flag value) const { return *value ? "on" : "off"; }
    std::string operator()(Option::Count count) const { return std::to_string(*count.value); }
    std::string operator()(Option::Integer number) const { return std::to_string(*number.value); }
    std::string operator()(Option::Bytes bytes) const {
        return in_units<3>(*bytes.value, {{{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}}});
    }
    std::string operator()(Option::Time time) const {
        const auto ms = static_cast<std::size_t>(time->count());
        return in_units<4>(ms, {{{3'600'000, "h"}, {60'000, "m"}, {1'000, "s"}, {1, "ms"}}});
    }
};

struct ValueForm {
    std::string_view operator()(Option::Text) const { return "TEXT"; }
    std::string_view operator()(Option::List) const { return "TEXT"; }
    std::string_view operator()(Option::Flag) const { return ""; }
    std::string_view operator()(Option::Count) const { return "N"; }
    std::string_view operator()(Option::Integer) const { return "N"; }
    std::string_view operator()(Option::Bytes) const { return "SIZE"; }
    std::string_view operator()(Option::Time) const { return "TIME"; }
};

}  // namespace

void apply(const Option& option, const std::vector<std::string>& values, const std::string& source) {
    option.clear_list();
    for (const std::string& value : values) {
        if (!is_utf8(value)) throw std::invalid_argument(source + ": the value is not UTF-8");
        try {
            option.set(value);
        } catch (const std::invalid_argument& error) {
            throw std::invalid_argument(source + ": " + error.what());
        }
    }
}

std::string variable_of(const Option& option) {
    std::string name = "SHARED_TENSOR_";
    for (const char c : option.name)
        name.push_back(c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c));
    return name;
}

std::optional<std::vector<std::string>> environment_values(const Option& option) {
    const char* value = std::getenv(variable_of(option).c_str());
    if (value == nullptr || (option.is_flag() && *value == '\0')) return std::nullopt;
    if (!option.is_list()) return std::vector<std::string>{value};
    std::vector<std::string> items;
    for_each_in(value, [&](std::string_view item) { items.emplace_back(item); });
    return items;
}

std::string default_text(const Option& option) { return std::visit(DefaultText(), option.value); }

std::string_view value_form(const Option& option) { return std::visit(ValueForm(), option.value); }

std::string no_such_option(std::string_view name, std::span<const std::string_view> names) {
    const std::string_view nearest = nearest_name(name, names);
    return nearest.empty() ? "no such option" : "no such option; the nearest is " + std::string(nearest);
}

std::vector<std::string_view> names_of(const std::vector<Option>& table) {
    std::vector<std::string_view> names;
    names.reserve(table.size());
    for (const Option& option : table)
        names.push_back(option.name);
    return names;
}

}  // namespace shared_tensor::server
