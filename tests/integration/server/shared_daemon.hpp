#pragma once

#include <string>

#include "support/daemon.hpp"
#include "support/rpc.hpp"

namespace shared_tensor::test {

inline Words with_plugins(const Words& options = {}) {
    return joined(options, {"--load", SHARED_TENSOR_SPEC_PLUGIN, "--load", kExamplePlugin});
}

/// One daemon for all tests of this process that ask nothing special of it: a start takes a second.
inline int shared_daemon() {
    static SharedDaemon daemon(with_plugins({"--workers", "4"}));
    return daemon.port();
}

/// A name that no other test holds or releases runs under.
inline std::string fresh_name() {
    static int count = 0;
    return "run-" + std::to_string(::getpid()) + '-' + std::to_string(++count);
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

/// Calls of a daemon with the plugins, and runs of functions that a test holds under a name of its own: `hold` and
/// others of the plugin run until release(), or until they are cancelled.
class Calls {
public:
    explicit Calls(int port = shared_daemon()) : port_(port) {}

    int port() const { return port_; }
    HttpReply post(const std::string& body, const HeaderList& headers = {}) const {
        return test::post(port_, body, headers);
    }
    HttpReply get(const std::string& path) const { return http_request(port_, "GET", path); }
    Json respond(const std::string& method, const Json& params = nullptr, const HeaderList& headers = {}) const {
        return test::respond(port_, method, params, headers);
    }
    Json call(const std::string& method, const Json& params = nullptr, const HeaderList& headers = {}) const {
        return test::call(port_, method, params, headers);
    }
    /// The code of the error; 0 for a result.
    int code(const std::string& method, const Json& params = nullptr, const HeaderList& headers = {}) const {
        return call_code(port_, method, params, headers);
    }
    Json totals() const { return call("server.info")["totals"]; }
    bool serves() const { return call("server.ping").is_object() && call("add", {1, 2}) == 3.0; }
    /// The id of a new task.
    Json submit(const std::string& method, const Json& params, Json more = Json::object()) const {
        more.update({{"method", method}, {"params", params}});
        return call("task.submit", more)["id"];
    }
    Json wait(const Json& id) const { return call("task.wait", {{"id", id}}); }

    PendingCall hold(const char* function = "hold", const HeaderList& headers = {}) const {
        return {port_, function, {name}, headers};
    }
    void release() const { call("release", {name}); }
    /// As test::make_brief(), for a function that runs until release().
    void make_brief(const char* function) const {
        const std::string released = fresh_name();
        call("release", {released});
        test::make_brief(port_, function, {released});
    }
    int runs(const char* what) const { return call("runs_of", {name})[what]; }
    /// Until `count` runs under the name have come so far.
    bool until(const char* what, int count = 1) const {
        return eventually([&] { return runs(what) >= count; });
    }

    const std::string name = fresh_name();

private:
    int port_;
};

/// A daemon with the plugins for one test.
struct OwnDaemon : Daemon, Calls {
    explicit OwnDaemon(const Words& options = {}) : Daemon(with_plugins(options)), Calls(Daemon::port()) {}
    using Calls::port;
};

/// The secret of tests' tokens; and what a client with it sends.
inline std::string secret_of(char letter) { return std::string(32, letter); }
inline HeaderList bearer(char letter) { return {{"Authorization", "Bearer " + secret_of(letter)}}; }
/// A line of a token file: a token with this name and the secret of its first letter.
inline std::string token(const std::string& name, const std::string& more = "") {
    return name + ':' + secret_of(name[0]) + more + '\n';
}

struct TokenFile {
    explicit TokenFile(const std::string& text) : tokens(folder.write("tokens", text)) {}
    const TemporaryFolder folder;
    const std::string tokens;  ///< its path
};
/// A daemon with the plugins and a token file.
struct TokenDaemon : TokenFile, OwnDaemon {
    explicit TokenDaemon(const std::string& text, const Words& options = {})
        : TokenFile(text), OwnDaemon(joined(options, {"--token-file", tokens})) {}
};

}  // namespace shared_tensor::test
