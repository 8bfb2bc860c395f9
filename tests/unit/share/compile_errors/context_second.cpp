// expect: SHARE: Context& must be the first parameter
#include <shared_tensor/share.hpp>

int late(int x, shared_tensor::Context&) { return x; }
SHARE(late);
