// expect: SHARE: name all parameters with arg(
#include <shared_tensor/share.hpp>

double same(shared_tensor::Context&, double a) { return a; }
SHARE(same, arg("context"), arg("a"));
