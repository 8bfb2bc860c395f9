#include "media.hpp"

namespace shared_tensor::test {

const std::vector<MediumCase>& media_here() {
    static const std::vector<MediumCase> media{kBody, kShm, kSimulated};
    return media;
}

}  // namespace shared_tensor::test
