// expect: SHARE: name all parameters with arg(
#include <shared_tensor/share.hpp>

double add(double a, double b) { return a + b; }
SHARE(add, arg("a"));
