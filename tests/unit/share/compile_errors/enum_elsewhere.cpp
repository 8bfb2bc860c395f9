// expect: SHARED_TENSOR_ENUM(shop::Mode, ...) stands in the wrong place: move it into the namespace in which shop::Mode
// is
#include <shared_tensor/share.hpp>
#include <shared_tensor/struct.hpp>

namespace shop {
enum class Mode { fast, exact };
int speed(Mode mode) { return mode == Mode::fast ? 2 : 1; }
}  // namespace shop

SHARED_TENSOR_ENUM(shop::Mode, fast, exact);
SHARE(shop::speed, arg("mode"));
