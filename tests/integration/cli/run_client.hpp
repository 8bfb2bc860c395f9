#pragma once

#include <string>

#include "support/daemon.hpp"

namespace shared_tensor::test {

/// Runs `command` to its end with these variables.
inline Ended run_program(const Words& command, const Words& variables) {
    TemporaryFolder folder;
    const std::string out = folder.file("out"), err = folder.file("err");
    Child child(command, variables, out, err);
    const int code = child.wait();
    return {code, text_of_file(out), text_of_file(err)};
}

/// The command-line client with these words only.
inline Ended run_client(const Words& words) {
    Words command{kClient};
    command.insert(command.end(), words.begin(), words.end());
    return run_program(command, {});
}

/// A daemon with the example plugin, and the command-line client in front of it.
struct CommandLineClient {
    Ended run(const Words& words) const {
        Words command{kClient};
        command.insert(command.end(), words.begin(), words.end());
        return run_program(command, variables());
    }
    Words variables() const { return {"SHARED_TENSOR_URL=" + url()}; }
    std::string url() const { return "http://127.0.0.1:" + std::to_string(daemon.port()); }

    Daemon daemon{Words{"--load", kExamplePlugin}};
};

inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace shared_tensor::test
