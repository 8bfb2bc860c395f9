#pragma once

#include <string>

#include "support/daemon.hpp"

namespace shared_tensor::test {

/// The command-line client with these words.
inline Ended run_client(const Words& words, const Words& variables = {}) {
    return run_program(joined({kClient}, words), variables);
}

/// A daemon with the example plugin, and the command-line client in front of it.
struct CommandLineClient {
    Ended run(const Words& words) const { return run_client(words, variables()); }
    Words variables() const { return {"SHARED_TENSOR_URL=" + daemon.url()}; }

    Daemon daemon{Words{"--load", kExamplePlugin}};
};

inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace shared_tensor::test
