// expect: SHARE: the default in arg(
#include <shared_tensor/share.hpp>

int same(int a) { return a; }
SHARE(same, arg("a") = "text");
