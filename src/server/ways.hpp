#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codec/value.hpp"
#include "server/parameters.hpp"

namespace shared_tensor::server {

/// What decides, on this side, which ways tensors can go.
struct WayFacts {
    std::string local_socket;          ///< empty: there is no local channel
    std::string local_reason;          ///< why not
    std::string cuda_reason;           ///< why no tensor on a device is handed over by handle; empty: it can be
    std::vector<std::string> devices;  ///< UUIDs of those
};

/// What a client says of itself in session.open; all of it may be missing.
struct ClientFacts {
    using List = Texts<64>;
    std::optional<std::string> boot_id, pid_namespace;
    std::optional<List> devices;  ///< UUIDs of those that it can use
    std::optional<List> accept;
    bool on_local_channel = false;
};

/// For each way, {"usable": true} or {"usable": false, "reason"}: what the server offers, or, given the facts of a
/// client, what it offers to that one.
codec::Json describe_ways(const WayFacts& server, const ClientFacts* client = nullptr);

}  // namespace shared_tensor::server
