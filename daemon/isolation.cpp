#include "program.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "server/option_reading.hpp"

namespace shared_tensor::daemon {

namespace {

using json_rpc::Json;
using server::Option;

bool exists(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
}

void set_argument(PluginArgument& argument, const std::string& name, const std::string& value) {
    std::size_t processes = 0;
    const std::vector<Option> table{{"processes", true, "", "", Option::Count{&processes, 0, 1024}},
                                    {"memory", true, "", "", Option::Bytes{&argument.memory}},
                                    {"files", true, "", "", Option::Count{&argument.files, 64}}};
    const auto option = std::find_if(table.begin(), table.end(), [&](const Option& one) { return one.name == name; });
    if (option == table.end())
        throw std::invalid_argument(server::no_such_option(name, server::names_of(table)) +
                                    "; a plugin takes processes, memory and files");
    server::apply(*option, {value}, name);
    if (name == "processes") argument.processes = processes;
}

void set_limit(decltype(RLIMIT_DATA) what, std::size_t most, const char* name) {
    if (most == 0) return;
    const rlimit limit{most, most};
    if (::setrlimit(what, &limit) != 0) throw std::system_error(errno, std::generic_category(), name);
}

/// The texts that set an option to the value that its show() returned.
std::vector<std::string> texts_of(const Json& shown) {
    if (shown.is_array()) return shown.get<std::vector<std::string>>();
    return {shown.is_string() ? shown.get<std::string>() : shown.dump()};
}

/// The options that differ from their defaults. The others stay out, because an option may not take its own default: 0
/// where 1 is the least value that an operator may give.
Json changed_options(DaemonOptions& options) {
    DaemonOptions defaults;
    const std::vector<Option> table = option_table(options), unchanged = option_table(defaults);
    Json changed = Json::object();
    for (std::size_t i = 0; i < table.size(); ++i) {
        Json value = table[i].show();
        if (value != unchanged[i].show()) changed[std::string(table[i].name)] = std::move(value);
    }
    return changed;
}

}  // namespace

PluginArgument parse_plugin(const std::string& text) {
    PluginArgument argument{text};
    const std::size_t question = text.rfind('?');
    if (question == std::string::npos || exists(text)) return argument;
    argument.path = text.substr(0, question);
    try {
        for (std::string_view rest = std::string_view(text).substr(question + 1); !rest.empty();) {
            const std::string_view one = rest.substr(0, rest.find('&'));
            rest.remove_prefix(std::min(rest.size(), one.size() + 1));
            const std::size_t equals = std::min(one.find('='), one.size());
            set_argument(argument, std::string(one.substr(0, equals)),
                         std::string(one.substr(std::min(equals + 1, one.size()))));
        }
        if (argument.memory + argument.files > 0 && argument.processes.value_or(0) == 0)
            throw std::invalid_argument("memory and files are limits of worker processes: add processes=1 or more");
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument("--load " + text + ": " + error.what());
    }
    return argument;
}

std::vector<PluginGroup> plugin_groups(const DaemonOptions& options) {
    std::vector<PluginGroup> groups(1);
    PluginGroup together{"--processes", {}, options.processes};
    for (const std::string& text : options.plugins) {
        PluginArgument one = parse_plugin(text);
        const std::size_t processes = one.processes.value_or(0);
        if (processes > 0) {
            groups.push_back({one.path, {one.path}, processes, one.memory, one.files});
        } else if (!one.processes && options.processes > 0) {
            together.paths.push_back(std::move(one.path));
        } else {
            groups.front().paths.push_back(std::move(one.path));
        }
    }
    if (!together.paths.empty()) groups.push_back(std::move(together));
    return groups;
}

std::string write_worker_start(const PluginGroup& group, DaemonOptions options) {
    const Json start{{"name", group.name},     {"paths", group.paths}, {"processes", group.processes},
                     {"memory", group.memory}, {"files", group.files}, {"options", changed_options(options)}};
    // A path of another option, which a worker does not use, may be no UTF-8.
    return start.dump(-1, ' ', false, Json::error_handler_t::replace);
}

WorkerStart read_worker_start(std::string_view text) {
    const Json start = Json::parse(text);
    WorkerStart result{{start.at("name").get<std::string>(), start.at("paths").get<std::vector<std::string>>(),
                        start.at("processes").get<std::size_t>(), start.at("memory").get<std::size_t>(),
                        start.at("files").get<std::size_t>()},
                       {}};
    const Json& options = start.at("options");
    for (const Option& option : option_table(result.options)) {
        const auto value = options.find(std::string(option.name));
        if (value != options.end()) server::apply(option, texts_of(*value), std::string(option.name));
    }
    return result;
}

void limit_resources(const PluginGroup& group) {
    set_limit(RLIMIT_DATA, group.memory, "the limit of memory");
    set_limit(RLIMIT_NOFILE, group.files, "the limit of open files");
}

}  // namespace shared_tensor::daemon
