#pragma once

#include <string>

#include <shared_tensor/client.hpp>

#include "support/daemon.hpp"

namespace shared_tensor::test {

/// A daemon with the example plugin, and where it is.
struct ExampleDaemon {
    /// `variables` as of Daemon.
    explicit ExampleDaemon(const Words& options = {}, const Words& variables = {})
        : daemon(with_plugin(options), variables) {}

    std::string url() const { return "http://127.0.0.1:" + std::to_string(daemon.port()); }
    Client client() const { return Client(url()); }

    Daemon daemon;

private:
    static Words with_plugin(const Words& options) {
        Words words{"--load", kExamplePlugin};
        words.insert(words.end(), options.begin(), options.end());
        return words;
    }
};

}  // namespace shared_tensor::test
