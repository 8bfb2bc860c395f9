#include <ATen/core/Tensor.h>

#include <shared_tensor/share.hpp>
#include <shared_tensor/torch.hpp>

at::Tensor project(const at::Tensor& x, const at::Tensor& w) { return x.matmul(w); }
SHARE(project, arg("x"), arg("w"), doc("Rows of x, projected by w."));
