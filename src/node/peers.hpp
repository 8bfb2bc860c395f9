#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <shared_tensor/client.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"

namespace shared_tensor::node {

/// Clients of other nodes, each made at first use. Beyond `most`, the client unused for longest is dropped, but none
/// that is in use. Thread safety: all methods from any thread.
class Peers {
public:
    Peers(ClientOptions options, std::size_t most) : options_(std::move(options)), most_(most) {}

    struct Peer {
        explicit Peer(Client made) : client(std::move(made)) {}
        const Client client;
        std::once_flag looked;
        bool is_near = false;  ///< whether it shares memory with this process; set by at()
    };
    using PeerPointer = std::shared_ptr<const Peer>;
    /// Blocks for a few round trips at the first use of a url. Throws std::invalid_argument for an invalid url, and the
    /// RpcErrors of its client.
    PeerPointer at(const std::string& url);
    /// Aborts all requests in flight. Clients made later are shut down too.
    void shutdown();
    std::size_t size() const;
    std::map<std::string, ClientStatistics> statistics() const;

private:
    struct Known {
        std::shared_ptr<Peer> peer;
        SteadyTime used;
    };
    struct State {
        std::map<std::string, Known> known;
        bool closed = false;
    };
    std::shared_ptr<Peer> find_or_make(const std::string& url);

    const ClientOptions options_;
    const std::size_t most_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::node
