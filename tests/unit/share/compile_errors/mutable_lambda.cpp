// expect: SHARE: several threads call it at once, so it must be callable as const: no mutable lambda
#include <shared_tensor/registry.hpp>

void add(shared_tensor::Registry& registry) {
    registry.add("count", [n = 0]() mutable { return ++n; });
}
