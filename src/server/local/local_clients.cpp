#include "server/local/local_clients.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/log/log.hpp"
#include "local/channel/channel.hpp"
#include "protocol/json_rpc/message.hpp"
#include "protocol/version.hpp"
#include "server/services.hpp"
#include "tensor/device/devices.hpp"

namespace shared_tensor::server {

using json_rpc::Error;
using json_rpc::Json;

/// A received request, and the descriptors that are sent with its answer.
struct LocalClients::Question {
    local::ChannelId channel;
    Connected who;
    json_rpc::Request request;
    local::Packet packet;
    std::vector<std::shared_ptr<const UniqueFd>> descriptors;

    /// Reads the parameters of the request. Throws Rejected if they do not have the types T.
    template <class... T>
    std::tuple<T...> params(const typename Parameters<T...>::Names& names) const {
        return Parameters<T...>(names).read(request.params);
    }
};

namespace {

using SegmentBytes = Integer<1, std::int64_t{1} << 46>;
constexpr std::size_t kMostIdBytes = 128;
using Ids = Texts<local::kMaxPacketBytes, kMostIdBytes>;  // the size of the packet limits their number

}  // namespace

std::shared_ptr<local::ChannelServer> LocalClients::Network::listening() const {
    return server.with([](const auto& held) { return held; });
}

void LocalClients::Network::close(local::ChannelId channel) const {
    if (const auto held = listening()) held->close(channel);
}

void LocalClients::Network::send(local::ChannelId channel, local::OutgoingPacket packet) const {
    if (const auto held = listening()) held->send(channel, std::move(packet));
}

void LocalClients::Network::answer(local::ChannelId channel, const json_rpc::Response& response,
                                   std::vector<std::shared_ptr<const UniqueFd>> descriptors) const {
    std::string text;
    json_rpc::print(response, text);
    if (text.size() > local::kMaxPacketBytes) return close(channel);  // the answer does not fit into a packet
    send(channel, {std::move(text), std::move(descriptors)});
}

std::vector<std::shared_ptr<LocalClient>> LocalClients::Network::all() const {
    return clients.with([](const auto& held) {
        std::vector<std::shared_ptr<LocalClient>> all;
        for (const auto& [channel, who] : held) {
            if (who.client != nullptr) all.push_back(who.client);
        }
        return all;
    });
}

void LocalClients::Network::segment_gone(const std::string& segment) {
    try {
        for (const auto& client : all())
            client->segment_gone(segment);
    } catch (const std::exception& error) {  // no memory: the client keeps its mapping until its channel ends
        log::error("the local channel: a client could not be told that memory is gone: ", error.what());
    }
}

LocalClients::Use LocalClients::use() const {
    Use use{network_->clients.with([](const auto& clients) { return clients.size(); }), offered_.used(), 0};
    for (const auto& client : network_->all())
        use.mapped += client->mapped();
    return use;
}

namespace {

/// Tensors up to this size share segments, because each segment takes a descriptor.
constexpr std::size_t kSmallTensor = std::size_t{64} << 10;

local::PoolLimits pool_limits(const SharedMemoryLimits& all) {
    return {all.max_bytes, all.max_bytes / 4, all.max_segments - all.max_segments / 2, kSmallTensor};
}

}  // namespace

LocalClients::LocalClients(Services& all)
    : all_(all),
      network_(std::make_shared<Network>()),
      pool_(pool_limits(all.options.shared_memory),
            [network = network_](const std::string& segment) { network->segment_gone(segment); }),
      offered_(all.options.shared_memory.max_segments / 2) {}

LocalClients::~LocalClients() { stop(); }

void LocalClients::close_revoked() {
    std::vector<local::ChannelId> revoked;
    network_->clients.with([&](const auto& clients) {
        for (const auto& [channel, who] : clients) {
            if (who.grant != nullptr && who.grant->is_revoked()) revoked.push_back(channel);
        }
    });
    for (const local::ChannelId channel : revoked)
        network_->close(channel);
}

std::shared_ptr<LocalClient> LocalClients::find(local::ChannelId channel) const {
    return network_->clients.with([&](const auto& clients) -> std::shared_ptr<LocalClient> {
        const auto found = clients.find(channel);
        return found == clients.end() ? nullptr : found->second.client;
    });
}

/// With tokens, session.open checks the token. Without tokens only the server's own user and root are admitted. The
/// mode of the socket file ensures that too, but it may have been changed.
bool LocalClients::opened(local::ChannelId channel, const local::Peer& peer) {
    if (!all_.access.may_connect(peer.uid)) return false;
    network_->clients.with([&](auto& clients) { clients[channel].peer = peer; });
    return true;
}

void LocalClients::closed(local::ChannelId channel) {
    std::shared_ptr<LocalClient> client;
    network_->clients.with([&](auto& clients) {
        client = std::move(clients[channel].client);
        clients.erase(channel);
    });
    if (client != nullptr) client->ended();
    all_.sessions.close_channel(channel);  // also if session.open failed after it had opened the session
    if (client == nullptr) return;
    // The process may still run and read its mappings: the end of its channel does not tell.
    const std::size_t ended = all_.leases.client_ended(client->lease_holder().client, false);
    log::debug("a client of the local channel is gone, with ", ended, " leases");
}

void LocalClients::received(local::ChannelId channel, local::Packet packet) {
    try {
        auto item = local::read_request(packet);
        if (const auto* rejected = std::get_if<json_rpc::Response>(&item)) {
            log::warn("closes a local channel: the client sent a packet that is not a JSON-RPC request");
            network_->answer(channel, *rejected);
            return network_->close(channel);  // a client that sends an invalid packet may have other faults
        }
        Question question{channel, {}, std::get<json_rpc::Request>(std::move(item)), std::move(packet), {}};
        question.who = network_->clients.with([&](auto& clients) { return clients[channel]; });
        Answer given = answer(question);
        if (question.request.is_notification()) return;
        network_->answer(channel, {*question.request.id, std::move(given)}, std::move(question.descriptors));
    } catch (const std::exception& error) {
        log::error("the local channel: ", error.what());
    }
}

LocalClients::Answer LocalClients::answer(Question& question) {
    const std::string& method = question.request.method;
    try {
        if (method == "session.open") return open_session(question);
        if (question.who.client == nullptr) return json_rpc::not_authorised("call session.open first");
        if (method == "session.close") return close_session(question);
        if (method == "segment.get") return get_segment(question);
        if (method == "segment.offer") return offer_segment(question);
        if (method == "segment.recycle") return recycle_segments(question);
        if (method == "segment.gone") {
            for (const auto [segments] = question.params<Ids>({"segments"}); const std::string& segment : segments.list)
                question.who.client->withdraw(segment);
            return Json::object();
        }
        if (method == "lease.confirm" || method == "lease.release" || method == "lease.retire")
            return end_leases(question);
        if (method == "lease.recall") return recall_leases(question);
        return json_rpc::method_not_found(method);
    } catch (const Rejected& bad) {
        return bad.error;
    } catch (const std::exception& error) {  // no memory, no descriptors: without an answer the client waits for ever
        log::error("the local channel: ", question.request.method, ": ", error.what());
        return json_rpc::internal_error();
    }
}

LocalClients::Answer LocalClients::close_session(const Question& question) {
    const auto [session] = question.params<std::string>({"session"});
    if (!all_.sessions.close(session, question.who.client->lease_holder().principal))
        return json_rpc::unknown_or_expired("session", all_.epoch);
    return Json{{"closed", true}};
}

LocalClients::Answer LocalClients::open_session(Question& question) {
    using Text = std::optional<std::string>;
    using List = std::optional<ClientFacts::List>;
    auto [shown, keeps_state, boot_id, pid_namespace, devices, accept, protocol] =
        question.params<Text, std::optional<bool>, Text, Text, List, List, Text>(
            {"token", "keeps_state", "boot_id", "pid_namespace", "devices", "accept", "protocol"});
    if (boot_id && !protocol) protocol = "0.1";  // that version's clients describe themselves, but name no protocol
    if (protocol) {
        const std::string mismatch = protocol_mismatch(*protocol, "this server", "the client");
        if (!mismatch.empty()) return json_rpc::invalid_request(mismatch);
    }
    const ClientFacts facts{std::move(boot_id), std::move(pid_namespace), devices, std::move(accept), true};
    const auto checked = all_.access.check_local(question.who.peer.uid, shown.value_or(""));
    if (const auto* rejection = std::get_if<Rejection>(&checked)) return json_rpc::not_authorised(rejection->reason);
    const std::string& principal = std::get<Principal>(checked).name;
    if (question.who.client != nullptr && question.who.client->lease_holder().principal != principal)
        return json_rpc::not_authorised("this channel belongs to another token: connect anew");
    auto place = question.who.place;
    if (const auto& use = std::get<Principal>(checked).use; place == nullptr && use != nullptr) {
        auto taken = use->channels.take(1);
        if (!taken) {
            return json_rpc::busy(std::chrono::seconds(1),
                                  "this principal has its maximum of local channels: close some, or raise "
                                  "--max-local-channels");
        }
        place = std::make_shared<const Budget::Share>(std::move(*taken));
    }
    const auto token = all_.sessions.open(principal, {question.channel, keeps_state.value_or(false)});
    if (!token) return json_rpc::busy(std::chrono::seconds(1));
    const auto& grant = std::get<Principal>(checked).grant;
    network_->clients.with([&](auto& clients) {
        clients[question.channel].grant = grant;
        clients[question.channel].place = place;
    });
    if (grant != nullptr && grant->is_revoked()) {  // close_revoked() may have run before `grant` was stored
        network_->close(question.channel);
        return json_rpc::not_authorised("the token is not valid any more");
    }
    if (question.who.client == nullptr) {
        const auto tell = [network = std::weak_ptr(network_), channel = question.channel](
                              const char* method, const char* list, const std::string& id) {
            if (const auto alive = network.lock())
                alive->send(channel, local::notification(method, list, std::span(&id, 1)));
        };
        const auto client =
            std::make_shared<LocalClient>(LocalMemory{pool_, all_.leases, offered_, std::get<Principal>(checked).use},
                                          runtime::LeaseHolder{principal, *token, question.who.peer.pid, true},
                                          devices ? devices->list : std::vector<std::string>(), tell);
        network_->clients.with([&](auto& clients) { clients[question.channel].client = client; });
    }
    if (const auto server = network_->listening()) server->settled(question.channel);
    Json own_devices = Json::array();
    for (const tensor::DeviceInfo& device : tensor::Devices::of_process().list())
        own_devices.push_back(device.uuid);
    Json opened{{"session", *token},
                {"epoch", all_.epoch},
                {"protocol", kNewestProtocol},
                {"devices", std::move(own_devices)},
                {"transports", describe_transports(all_, &facts)}};
    if (all_.options.named_callers) opened["caller"] = principal;
    return opened;
}

LocalClients::Answer LocalClients::get_segment(Question& question) const {
    const auto [segment] = question.params<std::string>({"segment"});
    const auto source = question.who.client->lent_segment(segment);
    if (!source) return json_rpc::unknown_or_expired("segment", all_.epoch);
    question.descriptors.push_back(source->descriptor);
    Json answer{{"size", source->bytes}};
    if (source->sharing == local::Sharing::writable) answer["writable"] = true;
    return answer;
}

LocalClients::Answer LocalClients::offer_segment(Question& question) {
    const auto [segment, size] = question.params<std::string, SegmentBytes>({"segment", "size"});
    if (segment.size() > kMostIdBytes)
        return json_rpc::invalid_params("segment", "a name of at most " + std::to_string(kMostIdBytes) + " bytes",
                                        std::to_string(segment.size()) + " bytes");
    if (question.packet.lost_descriptors) {
        return json_rpc::busy(std::chrono::seconds(1),
                              "the server has no descriptor left for the segment: its limit of open files (ulimit -n)");
    }
    if (question.packet.descriptors.size() != 1) {
        return json_rpc::invalid_params("descriptor", "one descriptor beside the request",
                                        std::to_string(question.packet.descriptors.size()));
    }
    auto descriptor = std::make_shared<const UniqueFd>(std::move(question.packet.descriptors.front()));
    switch (question.who.client->offer(segment, std::move(descriptor), static_cast<std::uint64_t>(size.value))) {
        case LocalClient::Offer::taken: return Json::object();
        case LocalClient::Offer::known: return json_rpc::invalid_params("segment", "a new one", "one that is known");
        case LocalClient::Offer::full: break;
    }
    return json_rpc::busy(std::chrono::seconds(1),
                          "the limit of segments that clients share with this server is reached: give some back, or "
                          "raise --max-segments or the limit of open files (ulimit -n)");
}

LocalClients::Answer LocalClients::recycle_segments(const Question& question) {
    Json free = Json::array();
    for (const auto [segments] = question.params<Ids>({"segments"}); const std::string& segment : segments.list) {
        if (question.who.client->recycle(segment)) free.push_back(segment);
    }
    return Json{{"free", std::move(free)}};
}

LocalClients::Answer LocalClients::end_leases(const Question& question) {
    const auto [leases] = question.params<Ids>({"leases"});
    const std::vector<std::string>& ids = leases.list;
    const std::string& client = question.who.client->lease_holder().client;
    using After = runtime::LeaseTable::After;
    const bool confirm = question.request.method == "lease.confirm";
    const After after = question.request.method == "lease.retire" ? After::retired : After::reused;
    const std::size_t count = confirm ? all_.leases.confirm(client, ids) : all_.leases.release(client, ids, after);
    if (!confirm) question.who.client->devices().closed(ids);
    return Json{{"leases", count}};
}

LocalClients::Answer LocalClients::recall_leases(const Question& question) {
    const auto [leases, lost] = question.params<Ids, std::optional<bool>>({"leases", "lost"});
    return Json{{"free", question.who.client->devices().recall(leases.list, lost.value_or(false))}};
}

}  // namespace shared_tensor::server
