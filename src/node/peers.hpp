#pragma once

#include <cstddef>
#include <map>
#include <string>

#include <shared_tensor/client.hpp>

#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::node {

/// Clients of other nodes, each made when it is first asked for. Thread safety: all methods from any thread.
class Peers {
public:
    Peers(ClientOptions options, std::size_t most) : options_(std::move(options)), most_(most) {}

    struct Peer {
        Client client;
        bool is_near = false;  ///< memory is shared with it
    };
    /// Blocks for a few round trips where it is not known yet. Throws std::invalid_argument for a url that is none, and
    /// RpcError's children.
    Peer at(const std::string& url);
    /// Ends all that is in flight; those made from now on are shut down as well.
    void shutdown();
    std::size_t size() const;

private:
    struct Known {
        Peer peer;
        SteadyTime used;
    };
    struct State {
        std::map<std::string, Known> known;
        bool closed = false;
    };
    const ClientOptions options_;
    const std::size_t most_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::node
