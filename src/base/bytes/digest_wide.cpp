#include "base/bytes/digest_kernel.hpp"  // compiled for AVX2 where the processor is x86-64 (CMakeLists.txt)

namespace shared_tensor {

const DigestKernel kWideDigest = kKernel;

}  // namespace shared_tensor
