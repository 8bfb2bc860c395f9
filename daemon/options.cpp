#include "program.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cxxopts.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <utility>

#include <shared_tensor/version.hpp>

#include "base/log/log.hpp"
#include "base/system/host.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "server/option_reading.hpp"

namespace shared_tensor::daemon {

namespace {

using nlohmann::json;

using server::apply;
using server::Option;

constexpr std::size_t kWidth = 100, kHelpColumn = 29;

constexpr std::string_view kIntroduction =
    "Shares C++ functions, models and tensors with other processes: JSON-RPC 2.0 over HTTP.\n"
    "Usage: shared-tensor-server [doctor] [OPTION...]   (doctor: checks what works on this host)\n"
    "An option may also come from the environment (SHARED_TENSOR_UNIX_SOCKET for --unix-socket) or from\n"
    "--config; flags win over environment over file. Times: 500ms, 30s, 5m, 1h. Sizes: 65536, 64K, 2G.\n";

constexpr const char* kListed = "; --help-all lists the options";
constexpr std::string_view kOther = "Other";
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOthers{
    {{"--config FILE", "JSON file with any of these options"},
     {"--print-config", "print the options in force as JSON and end"},
     {"--version", "print the version and end"},
     {"-h, --help", "print the common options and end"},
     {"--help-all", "print all options and end"}}};

/// Appends `what`, and `text` in the column beside it, broken into lines of at most kWidth.
void add_lines(std::string& out, std::string_view what, std::string_view text) {
    std::string line = "  " + std::string(what);
    line.resize(std::max(line.size() + 1, kHelpColumn), ' ');
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        if (line.size() + 1 + (end - at) > kWidth) {
            out += line + '\n';
            line.assign(kHelpColumn, ' ');
        }
        if (line.back() != ' ') line += ' ';
        line += text.substr(at, end - at);
        at = end + 1;
    }
    out += line + '\n';
}

[[noreturn]] void reject(const std::string& source, const std::string& why) {
    throw std::invalid_argument(source + ": " + why);
}

using Origins = std::map<std::string, std::string>;

void apply_environment(const std::vector<Option>& table, Origins& origins) {
    for (const Option& option : table) {
        const auto values = server::environment_values(option);
        if (!values) continue;
        apply(option, *values, server::variable_of(option));
        origins[std::string(option.name)] = server::variable_of(option);
    }
}

std::string text_of(const json& value, const std::string& source) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_integer() || value.is_boolean()) return value.dump();
    reject(source, "must be a string, an integer, true or false, or for lists an array of strings");
}

std::vector<std::string> values_of(const Option& option, const json& value, const std::string& source) {
    if (!option.is_list() || !value.is_array()) return {text_of(value, source)};
    std::vector<std::string> values;
    for (const json& element : value)
        values.push_back(text_of(element, source));
    return values;
}

json read_config(const std::string& path) {
    std::ifstream file(path);
    if (!file) reject(path, "the configuration file cannot be read");
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    auto parsed = json_rpc::parse_json(text);
    if (const auto* rejection = std::get_if<json_rpc::JsonTextError>(&parsed))
        reject(path, "not JSON: " + rejection->detail);
    if (!std::get<json>(parsed).is_object()) reject(path, "must hold one JSON object: {\"port\": 2537, ...}");
    return std::move(std::get<json>(parsed));
}

void apply_file(const std::vector<Option>& table, const std::string& path, Origins& origins) {
    const json config = read_config(path);
    for (const auto& item : config.items()) {
        const std::string& name = item.key();
        const std::string source = std::string(path).append(": ").append(name);
        const auto option = std::find_if(table.begin(), table.end(), [&](const Option& o) { return o.name == name; });
        if (option == table.end()) reject(source, server::no_such_option(name, server::names_of(table)) + kListed);
        apply(*option, values_of(*option, item.value(), source), source);
        origins[name] = path;
    }
}

cxxopts::Options command_line(const std::vector<Option>& table) {
    cxxopts::Options line("shared-tensor-server");
    line.allow_unrecognised_options();  // parse_line() rejects them
    for (const Option& option : table) {
        std::shared_ptr<cxxopts::Value> value = cxxopts::value<std::string>();
        if (option.is_list()) value = cxxopts::value<std::vector<std::string>>();
        if (option.is_flag()) value->implicit_value("true");
        const std::string name(option.name);
        line.add_options()(name, "", value);
        if (option.is_flag()) line.add_options()("no-" + name, "");
    }
    line.add_options()("config", "", cxxopts::value<std::string>())("print-config", "")("version", "")("h,help", "")(
        "help-all", "");
    return line;
}

void apply_flags(const std::vector<Option>& table, const cxxopts::ParseResult& given, Origins& origins) {
    for (const Option& option : table) {
        const std::string name(option.name), source = "--" + name;
        if (option.is_flag() && given.count("no-" + name) > 0) {
            option.set("false");
            origins[name] = "--no-" + name;
        }
        if (given.count(name) == 0) continue;
        origins[name] = source;
        if (option.is_list()) {
            apply(option, given[name].as<std::vector<std::string>>(), source);
        } else {
            apply(option, {given[name].as<std::string>()}, source);
        }
    }
}

/// The options with the values that the server will use.
std::string print_config(DaemonOptions options) {
    options.server = server::in_force(std::move(options.server));
    json config = json::object();
    for (const Option& option : option_table(options))
        config[std::string(option.name)] = option.show();
    return config.dump(2);
}

[[noreturn]] void reject_unknown(const std::string& argument, const std::vector<Option>& table) {
    if (!argument.starts_with('-')) reject(argument, std::string("unexpected argument") + kListed);
    const std::string word = argument.substr(0, argument.find('='));
    std::vector<std::string_view> names = server::names_of(table);
    names.insert(names.end(), {"config", "print-config", "version", "help", "help-all"});
    const std::size_t name = std::min(word.find_first_not_of('-'), word.size());
    reject(word, server::no_such_option(std::string_view(word).substr(name), names) + kListed);
}

cxxopts::ParseResult parse_line(cxxopts::Options& line, const std::vector<Option>& table, int argc, char** argv) {
    try {
        auto given = line.parse(argc, argv);
        if (!given.unmatched().empty()) reject_unknown(given.unmatched().front(), table);
        return given;
    } catch (const cxxopts::exceptions::exception& error) {
        throw std::invalid_argument(std::string(error.what()) + kListed);
    }
}

}  // namespace

std::string help_text(const std::vector<Option>& defaults, bool all) {
    std::string text(kIntroduction), section;
    for (const Option& option : defaults) {
        if (!all && !option.common) continue;
        if (section != option.section) text.append(option.section).append(":\n");
        section = option.section;
        const std::string shown = server::default_text(option), form(server::value_form(option));
        const bool turns_off = option.is_flag() && shown == "on", has_default = !shown.empty() && shown != "off";
        add_lines(text, (turns_off ? "--[no-]" : "--") + std::string(option.name) + (form.empty() ? "" : " " + form),
                  std::string(option.help) + (has_default ? " [" + shown + ']' : ""));
    }
    text.append(kOther).append(":\n");
    for (const auto& [what, help] : kOthers)
        add_lines(text, what, help);
    text.pop_back();
    return text;
}

std::vector<Option> option_table(DaemonOptions& options) {
    std::vector<Option> table = server::option_table(options.server);
    const auto put_first = [&](const char* name, std::string_view section, std::string_view help, auto value) {
        const auto place =
            std::find_if(table.begin(), table.end(), [&](const Option& o) { return o.section == section; });
        table.insert(place, {name, true, help, {}, value, section});
    };
    put_first("ready-file", "How it runs", "file that gets the URL once the server is ready", &options.ready_file);
    put_first("log-level", "How it runs", "trace, debug, info, warn, error or off", &options.log_level);
    put_first("processes", "How it runs", "worker processes that run the functions of plugins; 0: none",
              Option::Count{&options.processes, 0, 1024});
    put_first("load", "What it shares", "plugin with shared functions, a .so (repeatable)", &options.plugins);
    return table;
}

ParsedOptions parse_options(int argc, char** argv) {
    ParsedOptions parsed;
    DaemonOptions& options = parsed.options;
    options.server.raise_descriptor_limit = true;  // no other code of the process relies on the limit
    const std::vector<Option> table = option_table(options);
    cxxopts::Options line = command_line(table);
    const cxxopts::ParseResult given = parse_line(line, table, argc, argv);
    if (const bool all = given.count("help-all") > 0; all || given.count("help") > 0) {
        parsed.print = help_text(table, all);
        return parsed;
    }
    if (given.count("version") > 0) {
        parsed.print = "shared-tensor-server " SHARED_TENSOR_VERSION;
        return parsed;
    }
    Origins& origins = options.server.origins;
    options.server.port = default_port();
    if (options.server.port != ServerOptions().port) origins["port"] = "RANK or LOCAL_RANK";
    if (given.count("config") > 0) {
        apply_file(table, given["config"].as<std::string>(), origins);
    } else if (const char* path = std::getenv("SHARED_TENSOR_CONFIG"); path != nullptr && *path != '\0') {
        apply_file(table, path, origins);
    }
    apply_environment(table, origins);
    apply_flags(table, given, origins);
    for (const Option& option : table) {
        if (!option.member.empty()) continue;
        const json value = option.show();
        options.server.program_options[std::string(option.name)] =
            value.is_string() ? value.get<std::string>() : value.dump();
    }
    log::parse_level(options.log_level);  // throws if there is no such level
    if (given.count("print-config") > 0) parsed.print = print_config(options);
    return parsed;
}

}  // namespace shared_tensor::daemon
