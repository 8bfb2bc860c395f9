#include "configuration.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "server/option_reading.hpp"

namespace shared_tensor::daemon {

namespace {

using server::Option;

[[noreturn]] void reject(const std::string& source, const std::string& why) {
    throw std::invalid_argument(source + ": " + why);
}

std::string place_of(const std::string& path, const toml::source_region& source) {
    return path + ", line " + std::to_string(source.begin.line);
}

std::string text_of(const toml::node& value, const std::string& source) {
    if (const auto* text = value.as_string()) return text->get();
    if (const auto* number = value.as_integer()) return std::to_string(number->get());
    if (const auto* flag = value.as_boolean()) return flag->get() ? "true" : "false";
    reject(source, "must be a string, an integer, true or false, or for lists an array of strings");
}

std::vector<std::string> values_of(const Option& option, const toml::node& value, const std::string& source) {
    const toml::array* const list = option.is_list() ? value.as_array() : nullptr;
    if (list == nullptr) return {text_of(value, source)};
    std::vector<std::string> values;
    for (const toml::node& element : *list)
        values.push_back(text_of(element, source));
    return values;
}

toml::table read_file(const std::string& path) {
    constexpr std::size_t kLongest = std::size_t{1} << 20;
    std::ifstream file(path);
    if (!file) reject(path, "the configuration file cannot be read");
    std::string text(kLongest + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.bad()) reject(path, "the configuration file cannot be read, or is a folder");
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > kLongest) reject(path, "the configuration file has more than 1 MiB");
    try {
        return toml::parse(text, path);
    } catch (const toml::parse_error& error) {
        reject(place_of(path, error.source()),
               "not TOML: " + std::string(error.description()) + "; an option is a line such as port = 2537");
    }
}

}  // namespace

void apply_file(const std::vector<Option>& table, const std::string& path, Origins& origins) {
    const toml::table file = read_file(path);
    for (const auto& [key, value] : file) {
        const std::string name(key.str()), place = place_of(path, key.source()), source = place + ": " + name;
        if (value.is_table()) reject(source, "is a table: write each option as name = value, without tables");
        const auto option =
            std::find_if(table.begin(), table.end(), [&](const Option& one) { return one.name == name; });
        if (option == table.end())
            reject(source, server::no_such_option(name, server::names_of(table)) + "; --help-all lists the options");
        server::apply(*option, values_of(*option, value, source), source);
        origins[name] = place;
    }
}

std::string print_config(DaemonOptions options) {
    const Origins origins = options.server.origins;
    options.server = server::in_force(std::move(options.server));
    std::string text;
    for (const Option& option : option_table(options)) {
        constexpr std::size_t kCommentColumn = 40;
        const auto origin = origins.find(std::string(option.name));
        std::string line = std::string(option.name) + " = " + option.show().dump();  // a JSON text is a TOML text too
        line.resize(std::max(line.size() + 2, kCommentColumn), ' ');
        text.append(line).append("# ").append(origin == origins.end() ? "default" : origin->second).append("\n");
    }
    text.pop_back();
    return text;
}

}  // namespace shared_tensor::daemon
