#pragma once

#include <string>

#include <shared_tensor/client.hpp>

#include "support/daemon.hpp"
#include "support/role.hpp"
#include "support/rpc.hpp"

namespace shared_tensor::test {

/// As on another host: no memory is shared.
inline Client far_client(const std::string& url, ClientOptions options = {}) {
    options.url = url;
    options.local_socket = "none";
    return Client(options);
}

/// In a hidden test that class Role runs with a daemon's address.
inline Client client_of_role() {
    const std::string url = variable("TEST_URL");
    if (url.empty()) SKIP("a role of a second process: the tests of this file start it, with a daemon's address");
    return Client(url);
}

/// A daemon with the example plugin, and where it is.
struct ExampleDaemon {
    /// `variables` as of Daemon.
    explicit ExampleDaemon(const Words& options = {}, const Words& variables = {})
        : daemon(joined({"--load", kExamplePlugin}, options), variables) {}

    std::string url() const { return daemon.url(); }
    Client client() const { return Client(url()); }
    Client far() const { return far_client(url()); }

    /// The totals of server.info.
    Json totals() const { return call(daemon.port(), "server.info")["totals"]; }
    int leases() const { return totals()["shared_memory"]["leases"]; }
    /// Long before leases that nobody confirms end by themselves, after a minute.
    bool leases_become(int count) const {
        return eventually([&] { return leases() == count; });
    }

    Daemon daemon;
};

/// For TEST_CASE_METHOD: a daemon with no special options, and a client of this host.
struct Example {
    ExampleDaemon server;
    Client client = server.client();
};

}  // namespace shared_tensor::test
