// expect: SHARE: no Codec for this parameter type: use SHARED_TENSOR_FIELDS / SHARED_TENSOR_ENUM
#include <shared_tensor/share.hpp>

struct Mystery {};
int solve(const Mystery&) { return 42; }
SHARE(solve);
