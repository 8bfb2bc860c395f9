#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <iostream>
#include <string>

#include <shared_tensor/client.hpp>
#include <shared_tensor/torch.hpp>

int main(int, char** argv) {
    const shared_tensor::Client client{std::string(argv[1])};
    std::cout << client.call<std::string>("shop.greet", "world") << '\n'
              << client.call<double>("shop.price", 100.0) << '\n'
              << client.call<at::Tensor>("shop.twice", at::ones({2})).sum().item<double>() << '\n';
}
