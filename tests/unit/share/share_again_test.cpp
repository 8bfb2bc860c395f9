// A second file that shares: the list is one per module, not per file.

#include <shared_tensor/share.hpp>

namespace share_again_test {

static int elsewhere() { return 1; }

}  // namespace share_again_test

SHARE(share_again_test::elsewhere);
