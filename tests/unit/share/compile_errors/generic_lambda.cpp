// expect: SHARE: this cannot be called in exactly one way: name the parameter types (no auto, no overloads)
#include <shared_tensor/registry.hpp>

void add(shared_tensor::Registry& registry) {
    registry.add("same", [](auto x) { return x; });
}
