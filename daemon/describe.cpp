// What the manual page and the completions of shared-tensor-server say.

#include "program.hpp"
#include "server/option_reading.hpp"

namespace shared_tensor::daemon {

program::Description describe(const std::vector<server::Option>& defaults) {
    program::Description about;
    about.name = "shared-tensor-server";
    about.about = "shares functions, models and tensors with other processes";
    about.synopsis = "[doctor] [OPTION...]";
    about.introduction = {
        "Serves the functions of plugins and the methods of models to other processes, by JSON-RPC 2.0 over HTTP. "
        "Tensors "
        "are handed over in shared memory on one host. By default it listens on 127.0.0.1:2537, for processes of its "
        "own "
        "user.",
        "An option may be given as a flag, in the environment (SHARED_TENSOR_UNIX_SOCKET for --unix-socket; commas "
        "separate "
        "the items of a list), or in the TOML file that --config names (unix-socket = \"/run/s.sock\"). A flag "
        "takes "
        "precedence over the environment, the environment over the file, and the file over the default, which stands "
        "in "
        "brackets. Times have a unit: 500ms, 30s, 5m, 1h. Sizes are in bytes or powers of 1024: 65536, 64K, 2G. A list "
        "option may be repeated."};
    about.commands = {
        {"doctor", "", "checks what works on this host with these options, prints a report and ends", ""}};
    for (const server::Option& option : defaults) {
        const std::string name(option.name), section(option.section), shown = server::default_text(option);
        about.options.push_back({section, name, 0, std::string(server::value_form(option)), std::string(option.help),
                                 shown == "off" ? "" : shown});
        if (option.is_flag() && shown == "on")
            about.options.push_back({section, "no-" + name, 0, "", "turns --" + name + " off"});
    }
    for (const OtherOption& other : kOtherOptions)
        about.options.push_back(
            {"Other", std::string(other.name), other.letter, std::string(other.value), std::string(other.help)});
    about.parts = {
        {"Environment",
         {{"SHARED_TENSOR_OPTION", "the option of that name, in capitals and with _ for -"},
          {"SHARED_TENSOR_CONFIG", "the file of --config"},
          {"RANK, LOCAL_RANK", "the first that is set is added to the default port"}}},
        {"Signals",
         {{"SIGTERM, SIGINT", "ends the server: calls in flight may end within --drain-time"},
          {"a second signal", "ends it at once"},
          {"SIGHUP", "reads the options again: the log's level changes, other changes need a restart"}}},
        {"Exit status",
         {{"0", "it was told to end"},
          {"1", "it could not start, which a line on standard error explains; or code in it ended the process"}}},
        {"See also", {{"shared-tensor(1)", "the command that calls the functions"}}}};
    return about;
}

}  // namespace shared_tensor::daemon
