// expect: for at::Tensor include <shared_tensor/tensor.hpp>
#include <shared_tensor/share.hpp>

int rank(const at::Tensor&) { return 0; }
SHARE(rank);
