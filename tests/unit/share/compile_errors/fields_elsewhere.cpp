// expect: SHARED_TENSOR_FIELDS(shop::Box, ...) stands in the wrong place: move it into the namespace in which shop::Box
// is
#include <shared_tensor/share.hpp>
#include <shared_tensor/struct.hpp>

namespace shop {
struct Box {
    float x, y;
};
float area(const Box& box) { return box.x * box.y; }
}  // namespace shop

SHARED_TENSOR_FIELDS(shop::Box, x, y);
SHARE(shop::area, arg("box"));
