#pragma once

#include <unistd.h>

#include <string>

#include "support/daemon.hpp"

namespace shared_tensor::test {

inline Words with_rough_plugin(Words options = {}) {
    options.emplace_back("--load");
    options.emplace_back(SHARED_TENSOR_ROUGH_PLUGIN);
    return options;
}

/// A daemon that may end by itself, or never become ready. Its files are this test's.
class RoughDaemon {
public:
    explicit RoughDaemon(const Words& options = {}, const Words& variables = {})
        : ready_(folder_.file("ready")),
          err_(folder_.file("err")),
          child_(command(options), variables, folder_.file("out"), err_) {}

    /// Throws when it is not ready in half a minute.
    int port() const {
        if (!eventually([this] { return is_ready(); })) throw std::runtime_error("the daemon is not ready: " + log());
        const std::string url = text_of_file(ready_);
        return std::stoi(url.substr(url.rfind(':') + 1));
    }
    bool is_ready() const { return ::access(ready_.c_str(), F_OK) == 0; }
    Child& child() { return child_; }
    std::string log() const { return text_of_file(err_); }

private:
    Words command(const Words& options) const {
        Words words{kDaemon, "--port", "0", "--ready-file", ready_};
        words.insert(words.end(), options.begin(), options.end());
        return with_rough_plugin(std::move(words));
    }

    TemporaryFolder folder_;
    const std::string ready_, err_;
    Child child_;
};

}  // namespace shared_tensor::test
