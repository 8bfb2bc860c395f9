// expect: SHARE: name all parameters with arg(
#include <shared_tensor/share.hpp>

double same(double a) { return a; }
SHARE(same, arg("a"), arg("b"));
