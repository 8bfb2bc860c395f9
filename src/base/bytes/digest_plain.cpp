#include "base/bytes/digest_kernel_code.hpp"

namespace shared_tensor {

extern const DigestKernel kPlainDigest;
const DigestKernel kPlainDigest = kKernel;

}  // namespace shared_tensor
