#include "configuration.hpp"

#include <algorithm>
#include <cstdlib>

// A path may hold a comma: only repeated options make a list of more than one value.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include <cxxopts.hpp>
#include <stdexcept>
#include <utility>

#include <shared_tensor/version.hpp>

#include "base/log/log.hpp"
#include "base/system/host.hpp"
#include "server/option_reading.hpp"

namespace shared_tensor::daemon {

namespace {

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

[[noreturn]] void reject_option(const std::string& source, const std::string& why) {
    throw std::invalid_argument(source + ": " + why);
}

void apply_environment(const std::vector<Option>& table, Origins& origins) {
    for (const Option& option : table) {
        const auto values = server::environment_values(option);
        if (!values) continue;
        const std::string variable = server::variable_of(option);
        apply(option, *values, variable);
        origins[std::string(option.name)] = variable;
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
    for (const OtherOption& other : kOtherOptions) {
        const std::string letter = other.letter == 0 ? "" : std::string(1, other.letter) + ",";
        const auto value = other.value.empty() ? cxxopts::value<bool>() : cxxopts::value<std::string>();
        line.add_options()(letter + std::string(other.name), "", value);
    }
    return line;
}

void apply_flags(const std::vector<Option>& table, const cxxopts::ParseResult& given, Origins& origins) {
    for (const Option& option : table) {
        const std::string name(option.name), source = "--" + name;
        if (option.is_flag() && given.count("no-" + name) > 0) {
            option.set(given["no-" + name].as<bool>() ? "false" : "true");
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

[[noreturn]] void reject_unknown(const std::string& argument, const std::vector<Option>& table) {
    if (!argument.starts_with('-')) reject_option(argument, std::string("unexpected argument") + kListed);
    const std::string word = argument.substr(0, argument.find('='));
    std::vector<std::string_view> names = server::names_of(table);
    for (const OtherOption& other : kOtherOptions)
        names.push_back(other.name);
    const std::size_t name = std::min(word.find_first_not_of('-'), word.size());
    reject_option(word, server::no_such_option(std::string_view(word).substr(name), names) + kListed);
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
    for (const OtherOption& other : kOtherOptions) {
        if (!all && !other.common) continue;
        const std::string letter = other.letter == 0 ? "" : std::string("-") + other.letter + ", ";
        const std::string value = other.value.empty() ? "" : " " + std::string(other.value);
        add_lines(text, letter + "--" + std::string(other.name) + value, other.help);
    }
    text.pop_back();
    return text;
}

std::vector<Option> option_table(DaemonOptions& options) {
    std::vector<Option> table = server::option_table(options.server);
    const auto put_first = [&](const char* name, std::string_view section, std::string_view help, auto value,
                               bool common = true) {
        const auto place =
            std::find_if(table.begin(), table.end(), [&](const Option& o) { return o.section == section; });
        table.insert(place, {name, common, help, {}, value, section});
    };
    put_first("ready-file", "How it runs", "file that gets the URL once the server is ready", &options.ready_file);
    put_first("crash-report", "How it runs",
              "write the call and the stack when a signal such as SIGSEGV ends the process", &options.crash_report,
              false);
    put_first("log-format", "How it runs", "text, or json: one object a line", &options.log_format, false);
    put_first("log-level", "How it runs", "trace, debug, info, warn, error or off", &options.log_level);
    put_first("processes", "How it runs", "worker processes that run the plugins; 0: none",
              Option::Count{&options.processes, 0, 1024});
    put_first("load", "What it shares", "plugin, PATH.so or PATH.so?processes=N&memory=SIZE&files=N (repeatable)",
              &options.plugins);
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
    if (given.count("version") > 0) parsed.print = "shared-tensor-server " SHARED_TENSOR_VERSION;
    if (given.count("manual") > 0) parsed.print = program::manual_page(describe(table));
    if (given.count("completion") > 0)
        parsed.print = program::completion_script(describe(table), given["completion"].as<std::string>());
    if (parsed.print) return parsed;
    Origins& origins = options.server.origins;
    if (given.count("config") > 0) {
        apply_file(table, given["config"].as<std::string>(), origins);
    } else if (const char* path = std::getenv("SHARED_TENSOR_CONFIG"); path != nullptr && *path != '\0') {
        apply_file(table, path, origins);
    }
    apply_environment(table, origins);
    apply_flags(table, given, origins);
    if (!origins.contains("port") && !options.server.host.empty()) {
        options.server.port = default_port();
        if (options.server.port != ServerOptions().port) origins["port"] = "RANK or LOCAL_RANK";
    }
    for (const Option& option : table) {
        if (!option.member.empty()) continue;
        const json_rpc::Json value = option.show();
        options.server.program_options[std::string(option.name)] =
            value.is_string() ? value.get<std::string>() : value.dump();
    }
    log::parse_level(options.log_level);  // these throw if there is no such level or format
    log::parse_format(options.log_format);
    if (given.count("print-config") > 0) parsed.print = print_config(options);
    parsed.checks = given.count("check-config") > 0;
    return parsed;
}

void reload_options(DaemonOptions& options, int argc, char** argv) {
    try {
        DaemonOptions fresh = parse_options(argc, argv).options;
        log::set_level(log::parse_level(fresh.log_level));
        options.log_level = fresh.log_level;
        const std::vector<Option> before = option_table(options), now = option_table(fresh);
        for (std::size_t i = 0; i < now.size(); ++i) {
            if (before[i].show() != now[i].show())
                log::warn("--", now[i].name, " is ", now[i].show().dump(), " now, but this needs a restart");
        }
        log::info("read the options again; the log's level is ", options.log_level);
    } catch (const std::exception& error) {
        log::error("the options were not read again: ", error.what());
    }
}

}  // namespace shared_tensor::daemon
