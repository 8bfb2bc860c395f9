// expect: SHARE: a pointer cannot cross a process boundary: take the value, std::vector, Bytes or at::Tensor
#include <shared_tensor/share.hpp>

int first(const int* numbers) { return *numbers; }
SHARE(first);
