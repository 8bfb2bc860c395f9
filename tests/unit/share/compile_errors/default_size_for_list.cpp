// expect: SHARE: the default in arg(
#include <shared_tensor/share.hpp>

#include <vector>

std::vector<int> same(std::vector<int> a) { return a; }
SHARE(same, arg("a") = 3);
