#pragma once

#include <cstddef>

namespace shared_tensor::server {

/// Limits for the parts of a server that take file descriptors. The limits count these parts, not descriptors.
struct DescriptorShares {
    std::size_t connections = 0, web_sockets = 0, local_channels = 0;
    std::size_t own_segments = 0;      ///< of shared memory, for results
    std::size_t clients_segments = 0;  ///< of shared memory, offered by clients
};

/// Lowers the limits in `wanted` so that all parts together fit into `free` descriptors, and no part takes what another
/// part needs. Leaves a reserve of descriptors for connections that are rejected, packets of the local channel, and
/// files of functions. `segments`: the operator's limit for both kinds of segments together; 0: use what is left.
DescriptorShares share_descriptors(DescriptorShares wanted, std::size_t segments, std::size_t free);

}  // namespace shared_tensor::server
