// expect: SHARE: no Codec for the result type: use SHARED_TENSOR_FIELDS / SHARED_TENSOR_ENUM
#include <shared_tensor/share.hpp>

struct Mystery {};
Mystery find() { return {}; }
SHARE(find);
