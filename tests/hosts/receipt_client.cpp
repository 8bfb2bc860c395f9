// Calls shop.twice of the server at argv[1] with a tensor in shared memory, and prints an element of the result, the
// transports that were used, and how many bytes were copied.

#include <iostream>

#include <shared_tensor/client.hpp>

int main(int, char** argv) try {
    using namespace shared_tensor;  // NOLINT(google-build-using-namespace): a program of its tests
    const Client client(argv[1]);
    constexpr std::int64_t kCount = 1 << 20;
    const TensorRef x = client.empty_in_shared_memory({kCount}, DType::float32);
    auto* const elements = reinterpret_cast<float*>(x.mutable_data());
    for (std::int64_t i = 0; i < kCount; ++i)
        elements[i] = static_cast<float>(i);
    Receipt receipt;
    const auto y = client.call<TensorRef>(receipt, "shop.twice", x);
    std::cout << reinterpret_cast<const float*>(y.data())[1000];
    for (const auto& transport : receipt.transports)
        std::cout << ' ' << transport.name << " for " << transport.tensors;
    std::cout << ", copied " << receipt.bytes_copied << '\n';
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
