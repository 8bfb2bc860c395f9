#pragma once

#include <optional>
#include <string>
#include <vector>

#include "protocol/codec/value.hpp"
#include "server/methods/parameters.hpp"

namespace shared_tensor::server {

/// The server's facts that decide which transports can be used.
struct TransportFacts {
    std::string local_socket;          ///< empty: there is no local channel
    std::string local_reason;          ///< why there is none
    std::string cuda_reason;           ///< why IPC handles cannot be used; empty: they can
    std::vector<std::string> devices;  ///< UUIDs of the devices
};

/// The facts about a client from session.open. Each may be missing.
struct ClientFacts {
    using List = Texts<64>;
    std::optional<std::string> boot_id, pid_namespace;
    std::optional<List> devices;  ///< UUIDs of the devices that it can use
    std::optional<List> accept;
    bool on_local_channel = false;
};

/// Returns for each transport {"usable": true} or {"usable": false, "reason"}: whether the server offers it, or, if
/// `client` is given, whether it offers it to that client.
codec::Json describe_transports(const TransportFacts& server, const ClientFacts* client = nullptr);

}  // namespace shared_tensor::server
