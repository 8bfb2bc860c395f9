#include "server/local_clients.hpp"

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "json_rpc/parse.hpp"
#include "json_rpc/print.hpp"
#include "server/builtin_params.hpp"
#include "tensor/devices/devices.hpp"
#include "util/log.hpp"

namespace shared_tensor::server {

using json_rpc::Error;
using json_rpc::Json;

/// A request as it came, and what goes back beside its answer.
struct LocalClients::Question {
    local::ChannelId channel;
    Connected who;
    json_rpc::Request request;
    local::Packet packet;
    std::vector<std::shared_ptr<const UniqueFd>> descriptors;

    BuiltinParams params(std::initializer_list<std::string_view> names) const { return {request.params, names}; }
};

namespace {

constexpr std::int64_t kMaxSegmentBytes = std::int64_t{1} << 46;
constexpr std::size_t kMaxIds = local::kMaxPacketBytes;  // of one packet: its size bounds them already

}  // namespace

void LocalClients::Network::send(local::ChannelId channel, local::OutgoingPacket packet) {
    const auto listening = server.with([](const auto& held) { return held; });
    if (listening == nullptr) return;
    if (packet.text.size() <= local::kMaxPacketBytes) {
        listening->send(channel, std::move(packet));
    } else {
        listening->close(channel);  // it asked for more than an answer can hold
    }
}

void LocalClients::Network::notify(local::ChannelId channel, const char* method, const char* list,
                                   const std::string& id) {
    std::string text;
    json_rpc::print(json_rpc::Request{method, Json{{list, Json::array({id})}}, std::nullopt, nullptr}, text);
    send(channel, {std::move(text), {}});
}

void LocalClients::Network::segment_gone(const std::string& segment) {
    std::vector<std::pair<local::ChannelId, std::shared_ptr<LocalClient>>> all;
    clients.with([&](const auto& held) {
        for (const auto& [channel, who] : held) {
            if (who.client != nullptr) all.emplace_back(channel, who.client);
        }
    });
    for (const auto& [channel, client] : all) {
        if (client->forget_lent(segment)) notify(channel, "segment.gone", "segments", segment);
    }
}

LocalClients::LocalClients(Parts parts)
    : parts_(std::move(parts)),
      network_(std::make_shared<Network>()),
      pool_(parts_.pool, [network = network_](const std::string& segment) { network->segment_gone(segment); }) {}

LocalClients::~LocalClients() { stop(); }

void LocalClients::start(const std::string& path) {
    auto server = std::make_shared<local::ChannelServer>(local::ChannelServerOptions{path}, *this);
    network_->server.with([&](auto& held) { held = server; });
    server->start();
}

void LocalClients::stop() {
    std::shared_ptr<local::ChannelServer> server;
    network_->server.with([&](auto& held) { held.swap(server); });
    if (server != nullptr) server->stop();
}

void LocalClients::close_revoked() {
    std::vector<local::ChannelId> revoked;
    network_->clients.with([&](const auto& clients) {
        for (const auto& [channel, who] : clients) {
            if (who.grant != nullptr && who.grant->is_revoked()) revoked.push_back(channel);
        }
    });
    const auto server = network_->server.with([](const auto& held) { return held; });
    for (const local::ChannelId channel : revoked) {
        if (server != nullptr) server->close(channel);
    }
}

std::string LocalClients::path() const {
    return network_->server.with([](const auto& held) { return held != nullptr ? held->path() : std::string(); });
}

std::shared_ptr<LocalClient> LocalClients::find(local::ChannelId channel) const {
    return network_->clients.with([&](const auto& clients) -> std::shared_ptr<LocalClient> {
        const auto found = clients.find(channel);
        return found == clients.end() ? nullptr : found->second.client;
    });
}

/// With tokens anybody may connect who can open the socket file: session.open asks for one.
bool LocalClients::opened(local::ChannelId channel, const local::Peer& peer) {
    network_->clients.with([&](auto& clients) { clients[channel].peer = peer; });
    return true;
}

void LocalClients::closed(local::ChannelId channel) {
    std::shared_ptr<LocalClient> client;
    network_->clients.with([&](auto& clients) {
        client = std::move(clients[channel].client);
        clients.erase(channel);
    });
    if (client == nullptr) return;
    client->ended();
    parts_.sessions.close_channel(channel);
    // The process may live on with its mappings: only it can say that it does not.
    const std::size_t ended = parts_.leases.client_ended(client->lessee().client, false);
    log::debug("a client of the local channel is gone, with ", ended, " leases");
}

void LocalClients::received(local::ChannelId channel, local::Packet packet) {
    std::string text;
    try {
        auto parsed = json_rpc::parse(packet.text, {{20, local::kMaxPacketBytes}, 1});
        auto* message = std::get_if<json_rpc::Message>(&parsed);
        auto* request = message != nullptr && !message->is_batch
                            ? std::get_if<json_rpc::Request>(&message->items.front())
                            : nullptr;
        if (request == nullptr) {
            log::warn("a client of the local channel is sent away: what it sends is no request");
            if (const auto server = network_->server.with([](const auto& held) { return held; }))
                server->close(channel);
            return;
        }
        Question question{channel, {}, std::move(*request), std::move(packet), {}};
        question.who = network_->clients.with([&](auto& clients) { return clients[channel]; });
        Answer given = answer(question);
        if (question.request.is_notification()) return;
        json_rpc::print(json_rpc::Response{*question.request.id, std::move(given)}, text);
        network_->send(channel, {std::move(text), std::move(question.descriptors)});
    } catch (const std::exception& error) {
        log::error("the local channel: ", error.what());
    }
}

LocalClients::Answer LocalClients::answer(Question& question) {
    const std::string& method = question.request.method;
    try {
        if (method == "session.open") return open_session(question);
        if (question.who.client == nullptr) return json_rpc::not_authorised("call session.open first");
        if (method == "segment.get") return get_segment(question);
        if (method == "segment.offer") return offer_segment(question);
        if (method == "segment.recycle") return recycle_segments(question);
        if (method == "segment.gone") {
            for (const std::string& segment : question.params({"segments"}).texts("segments", kMaxIds))
                question.who.client->withdraw(segment);
            return Json::object();
        }
        if (method == "lease.confirm" || method == "lease.release") return end_leases(question);
        if (method == "lease.recall") return recall_leases(question);
        return json_rpc::method_not_found(method);
    } catch (const BadParameter& bad) {
        return bad.error();
    } catch (const std::exception& error) {  // for want of memory or descriptors: who asked would wait for ever
        log::error("the local channel: ", question.request.method, ": ", error.what());
        return json_rpc::internal_error();
    }
}

LocalClients::Answer LocalClients::open_session(Question& question) {
    const BuiltinParams params =
        question.params({"token", "keeps_state", "boot_id", "pid_namespace", "devices", "accept"});
    ClientFacts facts = ClientFacts::read(params);
    facts.on_local_channel = true;
    const auto checked = parts_.access.check_local(question.who.peer.uid, params.optional_text("token").value_or(""));
    if (const auto* refusal = std::get_if<Refusal>(&checked)) return json_rpc::not_authorised(refusal->reason);
    const std::string& principal = std::get<Principal>(checked).name;
    const Json* keeps_state = params.find("keeps_state");
    if (keeps_state != nullptr && !keeps_state->is_boolean())
        return json_rpc::invalid_params("keeps_state", "boolean", keeps_state->type_name());
    if (question.who.client != nullptr && question.who.client->lessee().principal != principal)
        return json_rpc::not_authorised("this channel belongs to another token: connect anew");
    const auto token =
        parts_.sessions.open(principal, {question.channel, keeps_state != nullptr && keeps_state->get<bool>()});
    if (!token) return json_rpc::busy(std::chrono::seconds(1));
    const auto& grant = std::get<Principal>(checked).grant;
    network_->clients.with([&](auto& clients) { clients[question.channel].grant = grant; });
    if (grant != nullptr && grant->is_revoked()) {  // just now: nobody would look at this channel again
        if (const auto server = network_->server.with([](const auto& held) { return held; }))
            server->close(question.channel);
        return json_rpc::not_authorised("the token is not valid any more");
    }
    if (question.who.client == nullptr) {
        auto seen = params.find("devices") != nullptr ? params.texts("devices", kMaxIds) : std::vector<std::string>();
        const auto client = make_client(question, {principal, *token, question.who.peer.pid, true}, std::move(seen));
        network_->clients.with([&](auto& clients) { clients[question.channel].client = client; });
    }
    Json devices = Json::array();
    for (const tensor::DeviceInfo& device : tensor::Devices::of_process().list())
        devices.push_back(device.uuid);
    return Json{{"session", *token},
                {"epoch", parts_.epoch},
                {"devices", std::move(devices)},
                {"ways", describe_ways(parts_.way_facts(), &facts)}};
}

std::shared_ptr<LocalClient> LocalClients::make_client(const Question& question, service::Lessee lessee,
                                                       std::vector<std::string> devices) {
    const auto tell = [network = std::weak_ptr(network_), channel = question.channel](const char* method,
                                                                                      const char* list) {
        return [network, channel, method, list](const std::string& id) {
            if (const auto alive = network.lock()) alive->notify(channel, method, list, id);
        };
    };
    auto device_client =
        std::make_shared<DeviceClient>(parts_.leases, lessee, std::move(devices), tell("lease.release", "leases"));
    return std::make_shared<LocalClient>(LocalMemory{pool_, parts_.leases}, std::move(lessee), std::move(device_client),
                                         tell("segment.free", "segments"));
}

LocalClients::Answer LocalClients::get_segment(Question& question) const {
    const auto source = question.who.client->lent_segment(question.params({"segment"}).text("segment"));
    if (!source) return json_rpc::unknown_or_expired("segment", parts_.epoch);
    question.descriptors.push_back(source->descriptor);
    Json answer{{"size", source->bytes}};
    if (source->sharing == shm::Sharing::writable) answer["writable"] = true;
    return answer;
}

LocalClients::Answer LocalClients::offer_segment(Question& question) {
    const BuiltinParams params = question.params({"segment", "size"});
    const std::string segment = params.text("segment");
    const auto size = params.optional_integer("size", 1, kMaxSegmentBytes);
    if (!size) return json_rpc::invalid_params("size", "integer, in bytes", "nothing");
    if (question.packet.descriptors.size() != 1) {
        return json_rpc::invalid_params("descriptor", "one descriptor beside the request",
                                        std::to_string(question.packet.descriptors.size()));
    }
    auto descriptor = std::make_shared<const UniqueFd>(std::move(question.packet.descriptors.front()));
    if (!question.who.client->offer(segment, std::move(descriptor), static_cast<std::uint64_t>(*size)))
        return json_rpc::invalid_params("segment", "a new one, and no more than 16384 at once", "one that is known");
    return Json::object();
}

LocalClients::Answer LocalClients::recycle_segments(const Question& question) {
    Json free = Json::array();
    for (const std::string& segment : question.params({"segments"}).texts("segments", kMaxIds)) {
        if (question.who.client->recycle(segment)) free.push_back(segment);
    }
    return Json{{"free", std::move(free)}};
}

LocalClients::Answer LocalClients::end_leases(const Question& question) {
    const auto ids = question.params({"leases"}).texts("leases", kMaxIds);
    const std::string& client = question.who.client->lessee().client;
    const bool release = question.request.method == "lease.release";
    const std::size_t count = release ? parts_.leases.release(client, ids) : parts_.leases.confirm(client, ids);
    if (release) question.who.client->devices().closed(ids);
    return Json{{"leases", count}};
}

LocalClients::Answer LocalClients::recall_leases(const Question& question) {
    const BuiltinParams params = question.params({"leases", "lost"});
    const Json* lost = params.find("lost");
    Json free = Json::array();
    for (const std::string& id : question.who.client->devices().recall(params.texts("leases", kMaxIds),
                                                                       lost != nullptr && lost->is_boolean() && *lost))
        free.push_back(id);
    return Json{{"free", std::move(free)}};
}

}  // namespace shared_tensor::server
