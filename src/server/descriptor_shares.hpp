#pragma once

#include <cstddef>

namespace shared_tensor::server {

/// What of a server takes descriptors, and how many of each there may be.
struct DescriptorShares {
    std::size_t connections = 0, web_sockets = 0, local_channels = 0;
    std::size_t own_segments = 0;      ///< of shared memory, for results
    std::size_t clients_segments = 0;  ///< of shared memory that clients offered
};

/// Lowers `wanted` to what fits into `free` descriptors, so that none of them takes what the others need, and a reserve
/// is left: for answers that turn a client away, packets of the local channel, and files of functions. `segments`: of
/// both kinds together, as the operator asks for; 0: what is left.
DescriptorShares share_descriptors(DescriptorShares wanted, std::size_t segments, std::size_t free);

}  // namespace shared_tensor::server
