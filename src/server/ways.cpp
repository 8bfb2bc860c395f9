#include "server/ways.hpp"

#include <algorithm>

#include "tensor/way.hpp"
#include "util/host_identity.hpp"

namespace shared_tensor::server {

using codec::Json;
using tensor::Way;

namespace {

bool other_host(const ClientFacts& client) { return client.boot_id && *client.boot_id != boot_id(); }

constexpr const char* kOtherHost =
    "the client runs on another host (its boot id is not the server's), where memory cannot be shared";

/// Returns why shared memory cannot be used; empty if it can be used.
std::string shm_refusal(const WayFacts& server, const ClientFacts* client) {
    if (server.local_socket.empty()) return server.local_reason;
    if (client == nullptr || client->on_local_channel) return {};
    if (other_host(*client)) return kOtherHost;
    return "this session was opened over HTTP: open one on the local channel, " + server.local_socket +
           ", which carries the memory";
}

/// The local channel also carries leases of device memory, so it is needed here too.
std::string cuda_refusal(const WayFacts& server, const ClientFacts* client) {
    if (!server.cuda_reason.empty()) return server.cuda_reason;
    if (std::string reason = shm_refusal(server, client); !reason.empty() || client == nullptr) return reason;
    if (client->pid_namespace && *client->pid_namespace != pid_namespace())
        return "the client runs in another PID namespace, where CUDA refuses handles: share it (--pid=host)";
    if (!client->devices) return {};
    const auto shared = [&](const std::string& uuid) {
        return std::find(server.devices.begin(), server.devices.end(), uuid) != server.devices.end();
    };
    const bool any = std::any_of(client->devices->list.begin(), client->devices->list.end(), shared);
    return any ? "" : "the client sees none of the server's devices (CUDA_VISIBLE_DEVICES)";
}

std::string refusal(Way way, const WayFacts& server, const ClientFacts* client) {
    if (client != nullptr && client->accept) {
        const auto& accept = client->accept->list;
        if (std::find(accept.begin(), accept.end(), tensor::name_of(way)) == accept.end())
            return "the client does not accept it";
    }
    switch (way) {
        case Way::shm: return shm_refusal(server, client);
        case Way::cuda_ipc: return cuda_refusal(server, client);
        default: return {};
    }
}

}  // namespace

Json describe_ways(const WayFacts& server, const ClientFacts* client) {
    Json ways = Json::object();
    for (const Way way : tensor::kWays) {
        const std::string reason = refusal(way, server, client);
        Json& entry = ways[std::string(tensor::name_of(way))];
        entry = {{"usable", reason.empty()}};
        if (!reason.empty()) entry["reason"] = reason;
    }
    return ways;
}

}  // namespace shared_tensor::server
