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

void limit_resources(const PluginGroup& group) {
    set_limit(RLIMIT_DATA, group.memory, "the limit of memory");
    set_limit(RLIMIT_NOFILE, group.files, "the limit of open files");
}

}  // namespace shared_tensor::daemon
