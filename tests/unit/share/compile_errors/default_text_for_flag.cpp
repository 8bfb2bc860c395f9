// expect: SHARE: the default in arg(
#include <shared_tensor/share.hpp>

bool same(bool a) { return a; }
SHARE(same, arg("a") = "no");
