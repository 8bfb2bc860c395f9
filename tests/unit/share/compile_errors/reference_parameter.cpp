// expect: SHARE: a non-const reference parameter cannot be shared: return the result instead (Context& goes first)
#include <shared_tensor/share.hpp>

void increase(int& number) { ++number; }
SHARE(increase);
