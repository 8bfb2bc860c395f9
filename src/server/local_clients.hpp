#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "json_rpc/message.hpp"
#include "server/access.hpp"
#include "server/local_client.hpp"
#include "server/sessions.hpp"
#include "server/ways.hpp"

namespace shared_tensor::server {

/// The local channel of a server: sessions, segments and leases of the processes of this host. Packets are JSON-RPC
/// 2.0, a request or a notification each, with descriptors beside (docs/protocol.md, "Local channel").
///
/// Thread safety: all methods from any thread.
class LocalClients final : public local::ChannelHandler {
public:
    struct Parts {
        const Access& access;
        Sessions& sessions;
        service::LeaseTable& leases;
        std::string epoch;
        shm::PoolLimits pool;
        std::size_t max_offered;  ///< segments of clients, all together: each holds a descriptor
        std::size_t max_channels;
        std::chrono::milliseconds open_within;  ///< session.open, after the channel was connected
        std::function<WayFacts()> way_facts;
    };
    explicit LocalClients(Parts parts);
    ~LocalClients() override;

    /// Listens. Throws std::system_error that names the path.
    void start(const std::string& path);
    void stop();
    /// Channels whose tokens are valid no more end.
    void close_revoked();
    /// Empty while it does not listen.
    std::string path() const;

    /// nullptr when that channel is gone.
    std::shared_ptr<LocalClient> find(local::ChannelId channel) const;
    /// Where tensors can be put that are to be lent.
    shm::SegmentPool& pool() { return pool_; }

    bool opened(local::ChannelId channel, const local::Peer& peer) override;
    void received(local::ChannelId channel, local::Packet packet) override;
    void closed(local::ChannelId channel) override;

private:
    struct Connected {
        local::Peer peer;
        std::shared_ptr<LocalClient> client;         ///< null before its first session
        std::shared_ptr<const Grant> grant;          ///< of the token that it showed
        std::shared_ptr<const Budget::Share> place;  ///< among the channels of its principal
    };
    struct Question;
    using Answer = std::variant<json_rpc::Json, json_rpc::Error>;

    /// Those who are connected. Segments tell of their end through it, even those that live longer than we.
    struct Network {
        Guarded<std::unordered_map<local::ChannelId, Connected>> clients;
        Guarded<std::shared_ptr<local::ChannelServer>> server;

        void send(local::ChannelId channel, local::OutgoingPacket packet);
        /// {"`list`": [`id`]}
        void notify(local::ChannelId channel, const char* method, const char* list, const std::string& id);
        void segment_gone(const std::string& segment);
    };

    void send_away(local::ChannelId channel, const json_rpc::Response& answer) const;
    Answer answer(Question& question);
    Answer open_session(Question& question);
    Answer get_segment(Question& question) const;
    static Answer offer_segment(Question& question);
    static Answer recycle_segments(const Question& question);
    Answer end_leases(const Question& question);
    static Answer recall_leases(const Question& question);
    std::shared_ptr<LocalClient> make_client(const Question& question, const Principal& principal,
                                             service::Lessee lessee, std::vector<std::string> devices);

    const Parts parts_;
    const std::shared_ptr<Network> network_;
    shm::SegmentPool pool_;
    Budget offered_;
};

}  // namespace shared_tensor::server
