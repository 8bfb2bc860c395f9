#include "media.hpp"

namespace shared_tensor::test {

const std::vector<TransportCase>& transports_here() {
    static const std::vector<TransportCase> transports{kBody, kShm, kSimulated};
    return transports;
}

}  // namespace shared_tensor::test
