#include "options.hpp"

#include <cstdlib>
#include <cxxopts.hpp>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <shared_tensor/version.hpp>

#include "json_rpc/json_text.hpp"
#include "option_table.hpp"
#include "util/default_port.hpp"

namespace shared_tensor::daemon {

namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& source, const std::string& why) {
    throw std::invalid_argument(source + ": " + why);
}

void apply(const OptionEntry& entry, DaemonOptions& options, const std::vector<std::string>& values,
           const std::string& source) {
    if (entry.clear) entry.clear(options);
    for (const std::string& value : values) {
        try {
            entry.set(options, value);
        } catch (const std::invalid_argument& error) {
            refuse(source, error.what());
        }
    }
}

std::string variable_of(const OptionEntry& entry) {
    std::string name = "SHARED_TENSOR_";
    for (const char c : entry.name)
        name.push_back(c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c));
    return name;
}

/// A list in an environment variable is separated by commas.
std::vector<std::string> split_list(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        if (comma > at) parts.push_back(text.substr(at, comma - at));
        at = comma + 1;
    }
    return parts;
}

void apply_environment(DaemonOptions& options) {
    for (const OptionEntry& entry : option_table()) {
        const std::string name = variable_of(entry);
        const char* value = std::getenv(name.c_str());
        if (value == nullptr || (entry.kind == OptionKind::flag && *value == '\0')) continue;
        apply(entry, options, entry.kind == OptionKind::list ? split_list(value) : std::vector<std::string>{value},
              name);
    }
}

std::string text_of(const json& value, const std::string& source) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_integer() || value.is_boolean()) return value.dump();
    refuse(source, "must be a string, an integer, true or false, or for lists an array of strings");
}

std::vector<std::string> values_of(const OptionEntry& entry, const json& value, const std::string& source) {
    if (entry.kind != OptionKind::list || !value.is_array()) return {text_of(value, source)};
    std::vector<std::string> values;
    for (const json& element : value)
        values.push_back(text_of(element, source));
    return values;
}

json read_config(const std::string& path) {
    std::ifstream file(path);
    if (!file) refuse(path, "the configuration file cannot be read");
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    auto parsed = json_rpc::parse_json(text);
    if (const auto* fault = std::get_if<json_rpc::JsonTextError>(&parsed)) refuse(path, "not JSON: " + fault->detail);
    if (!std::get<json>(parsed).is_object()) refuse(path, "must hold one JSON object: {\"port\": 2537, ...}");
    return std::move(std::get<json>(parsed));
}

void apply_file(DaemonOptions& options, const std::string& path) {
    const json config = read_config(path);
    for (const auto& item : config.items()) {
        const std::string& name = item.key();
        const std::string source = std::string(path).append(": ").append(name);
        const auto& table = option_table();
        const auto entry =
            std::find_if(table.begin(), table.end(), [&](const OptionEntry& e) { return e.name == name; });
        if (entry == table.end()) refuse(source, "no such option; --help lists them");
        apply(*entry, options, values_of(*entry, item.value(), source), source);
    }
}

cxxopts::Options command_line() {
    cxxopts::Options line(
        "shared-tensor-server",
        "Shares C++ functions, models and tensors with other processes: JSON-RPC 2.0 over HTTP.\n"
        "Every option may also come from the environment (SHARED_TENSOR_UNIX_SOCKET for --unix-socket)\n"
        "or from --config; flags win over environment over file over default.\n"
        "Times need a unit: 500ms, 30s, 5m, 1h. Sizes are in bytes: 65536, or 64K, 64M, 2G.\n");
    const DaemonOptions defaults;
    for (const OptionEntry& entry : option_table()) {
        const std::string help =
            entry.help + (entry.kind == OptionKind::list ? "" : " [" + entry.show(defaults).dump() + "]");
        const auto value = entry.kind == OptionKind::list
                               ? std::shared_ptr<cxxopts::Value>(cxxopts::value<std::vector<std::string>>())
                           : entry.kind == OptionKind::flag
                               ? std::shared_ptr<cxxopts::Value>(cxxopts::value<std::string>()->implicit_value("true"))
                               : std::shared_ptr<cxxopts::Value>(cxxopts::value<std::string>());
        line.add_option(entry.group, "", entry.name, help, value, entry.kind == OptionKind::flag ? "" : "ARG");
        if (entry.kind == OptionKind::flag)
            line.add_option("negations", "", "no-" + entry.name, "", cxxopts::value<bool>(), "");
    }
    auto add = line.add_options("Other");
    add("config", "JSON file with any of these options", cxxopts::value<std::string>(), "FILE");
    add("print-config", "print the outcome of all sources as JSON and end");
    add("version", "print the version and end");
    add("h,help", "print this and end");
    return line;
}

void apply_flags(DaemonOptions& options, const cxxopts::ParseResult& given) {
    for (const OptionEntry& entry : option_table()) {
        const std::string source = "--" + entry.name;
        if (entry.kind == OptionKind::flag && given.count("no-" + entry.name) > 0) entry.set(options, "false");
        if (given.count(entry.name) == 0) continue;
        if (entry.kind == OptionKind::list) {
            apply(entry, options, given[entry.name].as<std::vector<std::string>>(), source);
        } else {
            apply(entry, options, {given[entry.name].as<std::string>()}, source);
        }
    }
}

std::string print_config(const DaemonOptions& options) {
    json config = json::object();
    for (const OptionEntry& entry : option_table())
        config[entry.name] = entry.show(options);
    return config.dump(2);
}

cxxopts::ParseResult parse_line(cxxopts::Options& line, int argc, char** argv) {
    try {
        auto given = line.parse(argc, argv);
        if (!given.unmatched().empty())
            refuse(given.unmatched().front(), "unexpected argument; --help lists the options");
        return given;
    } catch (const cxxopts::exceptions::exception& error) {
        throw std::invalid_argument(std::string(error.what()) + "; --help lists the options");
    }
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
    cxxopts::Options line = command_line();
    const cxxopts::ParseResult given = parse_line(line, argc, argv);
    ParsedOptions parsed;
    if (given.count("help") > 0) {
        parsed.print = line.help({"Where it listens", "What it shares", "How it runs", "Limits", "Other"});
        return parsed;
    }
    if (given.count("version") > 0) {
        parsed.print = "shared-tensor-server " SHARED_TENSOR_VERSION;
        return parsed;
    }
    DaemonOptions& options = parsed.options;
    options.server.port = -1;
    options.server.raise_descriptor_limit = true;  // the process is the server's alone
    if (given.count("config") > 0) {
        apply_file(options, given["config"].as<std::string>());
    } else if (const char* path = std::getenv("SHARED_TENSOR_CONFIG"); path != nullptr && *path != '\0') {
        apply_file(options, path);
    }
    apply_environment(options);
    apply_flags(options, given);
    if (options.server.port < 0) options.server.port = default_port();
    if (given.count("print-config") > 0) parsed.print = print_config(options);
    return parsed;
}

}  // namespace shared_tensor::daemon
