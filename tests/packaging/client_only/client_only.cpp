#include <iostream>

#include <shared_tensor/client.hpp>

int main(int, char** argv) {
    const shared_tensor::Client client(argv[1]);
    float numbers[] = {1, 2, 3};
    const shared_tensor::TensorRef x(numbers, shared_tensor::DType::float32, {3});
    const auto y = client.call<shared_tensor::TensorRef>("shop.twice", x);
    std::cout << reinterpret_cast<const float*>(y.data())[2] << '\n';
}
