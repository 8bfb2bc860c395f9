#include "media.hpp"

namespace shared_tensor::test {

const std::vector<TransportCase>& transports_here() {
    static const std::vector<TransportCase> transports{kCudaIpc};
    return transports;
}

}  // namespace shared_tensor::test
