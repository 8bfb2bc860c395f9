#include <cstdio>

#include <shared_tensor/registry.hpp>

int main() {
    const auto registry = shared_tensor::Registry::from_shared();
    std::printf("%zu functions\n", registry.size());
}
