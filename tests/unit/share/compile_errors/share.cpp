// expect: nothing
#include <shared_tensor/share.hpp>

double add(double a, double b) { return a + b; }
SHARE(add, arg("a"), arg("b") = 1.0);
