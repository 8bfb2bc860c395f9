#include "server/local/descriptor_shares.hpp"

#include <algorithm>

namespace shared_tensor::server {

DescriptorShares share_descriptors(DescriptorShares wanted, std::size_t segments, std::size_t free) {
    const std::size_t reserve = std::clamp<std::size_t>(free / 8, 16, 512);
    const std::size_t rest = free - std::min(free, reserve);
    const auto at_most = [](std::size_t count, std::size_t most) {
        return std::min(count, std::max<std::size_t>(1, most));
    };
    DescriptorShares shares;
    shares.connections = at_most(wanted.connections, rest * 5 / 16);
    shares.web_sockets = at_most(wanted.web_sockets, rest / 16);        // one descriptor each, beside the connection's
    shares.local_channels = at_most(wanted.local_channels, rest / 16);  // two descriptors each: socket and pidfd
    const std::size_t others = shares.connections + shares.web_sockets + 2 * shares.local_channels;
    const std::size_t left = segments > 0 ? segments : rest - std::min(rest, others);
    shares.own_segments = segments > 0 ? std::max<std::size_t>(1, left / 2) : at_most(wanted.own_segments, left / 2);
    shares.clients_segments =
        segments > 0 ? std::max<std::size_t>(1, left / 2) : at_most(wanted.clients_segments, left / 2);
    return shares;
}

}  // namespace shared_tensor::server
