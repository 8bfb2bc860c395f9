#include "util/digest_kernel_code.hpp"  // compiled for AVX2 where there is such a thing (CMakeLists.txt)

namespace shared_tensor {

extern const DigestKernel kWideDigest;
const DigestKernel kWideDigest = kKernel;

}  // namespace shared_tensor
