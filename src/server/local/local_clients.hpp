#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/concurrency/guarded.hpp"
#include "protocol/json_rpc/message.hpp"
#include "server/auth/access.hpp"
#include "server/local/local_client.hpp"
#include "server/methods/parameters.hpp"

namespace shared_tensor::server {

struct Services;

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
codec::Json describe_transports(const Services& all, const ClientFacts* client = nullptr);

/// The local channel of a server: sessions, segments and leases of client processes on this host. A packet is one
/// request or notification of JSON-RPC 2.0, and may carry descriptors (docs/protocol.md, "Local channel").
///
/// Thread safety: all methods from any thread.
class LocalClients final : public local::ChannelHandler {
public:
    /// Uses the options, tables and tokens of `all`, which must outlive it.
    explicit LocalClients(Services& all);
    ~LocalClients() override;

    /// Begins to listen if the options want it (local_socket). `port` is the server's TCP port; 0: it listens on a Unix
    /// socket only. If this fails, it throws if the options name a path; else the server works over HTTP only.
    void start(int port);
    void stop();
    /// Closes the channels whose tokens were revoked.
    void close_revoked();
    /// The path of the socket; empty while the server does not listen.
    std::string path() const;
    /// Why path() is empty. It has no meaning while path() has a path.
    std::string reason() const {
        return reason_.with([](const std::string& reason) { return reason; });
    }

    /// Returns nullptr if the channel is closed, or has no session yet.
    std::shared_ptr<LocalClient> find(local::ChannelId channel) const;
    /// Segments for tensors that are to be lent to clients.
    local::SegmentPool& pool() { return pool_; }

    struct Use {
        std::size_t channels = 0;  ///< connected processes
        std::size_t offered = 0;   ///< segments that clients offered
        std::size_t mapped = 0;    ///< mappings of these segments, idle ones included
    };
    Use use() const;

    bool opened(local::ChannelId channel, const local::Peer& peer) override;
    void received(local::ChannelId channel, local::Packet packet) override;
    void closed(local::ChannelId channel) override;

private:
    struct Connected {
        local::Peer peer;
        std::shared_ptr<LocalClient> client;         ///< null before its first session
        std::shared_ptr<const Permissions> grant;    ///< of the client's token; null without tokens
        std::shared_ptr<const Budget::Share> place;  ///< counts against the channels of the client's principal
    };
    struct Question;
    using Answer = std::variant<json_rpc::Json, json_rpc::Error>;

    /// The connected clients. Segments report their end to it, and may outlive LocalClients, so it is shared with them.
    struct Network {
        Guarded<std::unordered_map<local::ChannelId, Connected>> clients;
        Guarded<std::shared_ptr<local::ChannelServer>> server;

        /// Null while the server does not listen.
        std::shared_ptr<local::ChannelServer> listening() const;
        std::vector<std::shared_ptr<LocalClient>> all() const;
        void close(local::ChannelId channel) const;
        void send(local::ChannelId channel, local::OutgoingPacket packet) const;
        void answer(local::ChannelId channel, const json_rpc::Response& response,
                    std::vector<std::shared_ptr<const UniqueFd>> descriptors = {}) const;
        void segment_gone(const std::string& segment);
    };

    Answer answer(Question& question);
    Answer open_session(Question& question);
    Answer close_session(const Question& question);
    Answer get_segment(Question& question) const;
    static Answer offer_segment(Question& question);
    static Answer recycle_segments(const Question& question);
    Answer end_leases(const Question& question);
    static Answer recall_leases(const Question& question);

    void listen(const std::string& path);

    Services& all_;
    const std::shared_ptr<Network> network_;
    local::SegmentPool pool_;
    Budget offered_;  ///< segments of all clients together: each takes a descriptor
    Guarded<std::string> reason_{"the local channel of the server is not open"};  ///< requests may come before start()
    std::string alias_;                                                           ///< a link to the socket; empty: none
};

}  // namespace shared_tensor::server
