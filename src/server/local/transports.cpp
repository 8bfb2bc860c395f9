// Which transports a server offers, and why not the others.

#include <algorithm>

#include "base/system/host.hpp"
#include "server/services.hpp"
#include "tensor/descriptor.hpp"
#include "tensor/device/devices.hpp"

namespace shared_tensor::server {

using codec::Json;
using tensor::TransportKind;

namespace {

bool other_host(const ClientFacts& client) { return client.boot_id && *client.boot_id != boot_id(); }

constexpr const char* kOtherHost =
    "the client runs on another host (its boot id is not the server's), where memory cannot be shared";

/// Returns why shared memory cannot be used; empty if it can be used.
std::string shm_rejection(const Services& all, const ClientFacts* client) {
    const std::string path = all.local.path();
    if (path.empty()) return all.local.reason();
    if (client == nullptr || client->on_local_channel) return {};
    if (other_host(*client)) return kOtherHost;
    return "this session was opened over HTTP: open one on the local channel, " + path + ", which carries the memory";
}

/// The local channel also carries leases of device memory, so it is needed here too.
std::string cuda_rejection(const Services& all, const ClientFacts* client) {
    const auto& devices = tensor::Devices::of_process();
    if (std::string reason = devices.viable().reason; !reason.empty()) return reason;
    if (std::string reason = shm_rejection(all, client); !reason.empty() || client == nullptr) return reason;
    if (client->pid_namespace && *client->pid_namespace != pid_namespace())
        return "the client runs in another PID namespace, where CUDA rejects handles: share it (--pid=host)";
    if (!client->devices) return {};
    const std::vector<std::string>& seen = client->devices->list;
    const auto own = devices.list();
    const bool any = std::any_of(own.begin(), own.end(), [&](const tensor::DeviceInfo& device) {
        return std::find(seen.begin(), seen.end(), device.uuid) != seen.end();
    });
    return any ? "" : "the client sees none of the server's devices (CUDA_VISIBLE_DEVICES)";
}

std::string rejection(TransportKind transport, const Services& all, const ClientFacts* client) {
    if (client != nullptr && client->accept) {
        const auto& accept = client->accept->list;
        if (std::find(accept.begin(), accept.end(), tensor::name_of(transport)) == accept.end())
            return "the client does not accept it";
    }
    switch (transport) {
        case TransportKind::shm: return shm_rejection(all, client);
        case TransportKind::cuda_ipc: return cuda_rejection(all, client);
        default: return {};
    }
}

}  // namespace

Json describe_transports(const Services& all, const ClientFacts* client) {
    Json transports = Json::object();
    for (const TransportKind transport : tensor::kTransportKinds) {
        const std::string reason = rejection(transport, all, client);
        Json& entry = transports[std::string(tensor::name_of(transport))];
        entry = {{"usable", reason.empty()}};
        if (!reason.empty()) entry["reason"] = reason;
    }
    return transports;
}

}  // namespace shared_tensor::server
