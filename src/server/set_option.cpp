#include <shared_tensor/server_options.hpp>

#include <algorithm>
#include <stdexcept>

#include "server/option_reading.hpp"

namespace shared_tensor {

using server::Option;

void set_option(ServerOptions& options, std::string_view name, std::string_view value) {
    std::string wanted(name);
    std::replace(wanted.begin(), wanted.end(), '_', '-');
    const std::vector<Option> table = server::option_table(options);
    const auto option = std::find_if(table.begin(), table.end(), [&](const Option& one) { return one.name == wanted; });
    try {
        if (option == table.end())
            throw std::invalid_argument(server::no_such_option(wanted, server::names_of(table)) +
                                        "; docs/options.md lists the options");
        option->set(std::string(value));
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(std::string(name) + ": " + error.what());
    }
}

std::vector<std::pair<std::string, std::string>> options_in_environment() {
    ServerOptions checked;
    std::vector<std::pair<std::string, std::string>> found;
    for (const Option& option : server::option_table(checked)) {
        const auto values = server::environment_values(option);
        if (!values) continue;
        server::apply(option, *values, server::variable_of(option));
        for (const std::string& value : *values)
            found.emplace_back(option.name, value);
    }
    return found;
}

std::vector<OptionInfo> list_server_options() {
    ServerOptions defaults;
    std::vector<OptionInfo> all;
    for (const Option& option : server::option_table(defaults))
        all.push_back({option.name, option.section, option.help, server::value_form(option), option.is_list(),
                       option.common, server::default_text(option)});
    return all;
}

}  // namespace shared_tensor
