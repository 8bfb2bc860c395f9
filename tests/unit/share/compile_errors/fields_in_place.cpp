// expect: nothing
#include <shared_tensor/share.hpp>
#include <shared_tensor/struct.hpp>

namespace shop {
struct Box {
    float x, y;
};
SHARED_TENSOR_FIELDS(Box, x, y);
enum class Mode { fast, exact };
SHARED_TENSOR_ENUM(Mode, fast, exact);
float area(const Box& box, Mode) { return box.x * box.y; }
SHARE(area, arg("box"), arg("mode"));
}  // namespace shop
