#include "util/closer.hpp"

#include <memory>

#include "util/of_this_process.hpp"

namespace shared_tensor {

namespace {

using Thread = NeverDestroyed<OfThisProcess<Background>>;
constinit Thread closing, telling;

}  // namespace

Background& closer() {
    return closing.value.get([] { return std::make_unique<Background>("st-closer"); });
}

Background& messenger() {
    return telling.value.get([] { return std::make_unique<Background>("st-messenger"); });
}

}  // namespace shared_tensor
