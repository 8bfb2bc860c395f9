#include <ATen/core/Tensor.h>

#include <string>

#include <shared_tensor/share.hpp>
#include <shared_tensor/torch.hpp>

namespace shop {

double price(double net, double rate) { return net * (1 + rate); }
SHARE(price, arg("net"), arg("rate") = 0.19, doc("The price with tax."));

std::string greet(const std::string& name) { return "Hello " + name; }
SHARE(greet, arg("name"));

at::Tensor twice(const at::Tensor& x) { return x.mul(2); }
SHARE(twice, arg("x"));

}  // namespace shop
