#pragma once

#include <string>

#include "support/daemon.hpp"
#include "support/rpc.hpp"

namespace shared_tensor::test {

inline Words with_plugins(Words options = {}) {
    for (const char* plugin : {SHARED_TENSOR_SPEC_PLUGIN, kExamplePlugin}) {
        options.emplace_back("--load");
        options.emplace_back(plugin);
    }
    return options;
}

/// One daemon for all tests of this process that ask nothing special of it: a start takes a second.
inline int shared_daemon() {
    static Daemon daemon(with_plugins({"--workers", "4"}));
    return daemon.port();
}

/// A name that no other test holds or releases runs under.
inline std::string fresh_name() {
    static int count = 0;
    return "run-" + std::to_string(::getpid()) + '-' + std::to_string(++count);
}

inline int runs(int port, const std::string& name, const char* what) { return call(port, "runs_of", {name})[what]; }

/// Until `count` runs under that name have come so far.
inline bool until(int port, const std::string& name, const char* what, int count) {
    return eventually([&] { return runs(port, name, what) >= count; });
}

/// A call whose answer is read later.
class PendingCall {
public:
    PendingCall(int port, const std::string& method, const Json& params, const HeaderList& headers = {}) : peer_(port) {
        peer_.request("POST", "/jsonrpc", call_object(method, params).dump(), headers);
    }
    HttpReply reply() { return peer_.read(); }
    Json response() { return Json::parse(reply().body); }
    void hang_up() { peer_.close(); }

private:
    HttpPeer peer_;
};

}  // namespace shared_tensor::test
