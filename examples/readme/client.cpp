#include <ATen/ATen.h>

#include <iostream>
#include <shared_tensor/client.hpp>
#include <shared_tensor/torch.hpp>

int main() {
    shared_tensor::Client client;  // 127.0.0.1:2537, or what SHARED_TENSOR_URL says
    auto y = client.call<at::Tensor>("project", at::ones({2, 3}), at::eye(3));
    std::cout << y << '\n';
}
