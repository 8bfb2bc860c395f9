#include "client/core.hpp"
#include "client/default_url.hpp"

// Apart from core.cpp, so that a test of the core links neither sockets nor libtorch.

namespace shared_tensor::client {

Surroundings real_surroundings(const ClientOptions& options) {
    return {http_transport(completed(options)), tensor_ports(), &real_clock(), {}};
}

}  // namespace shared_tensor::client
