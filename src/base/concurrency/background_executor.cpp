#include "base/concurrency/background_executor.hpp"

#include <memory>

#include "base/system/of_this_process.hpp"

namespace shared_tensor {

namespace {

using Thread = NeverDestroyed<OfThisProcess<Background>>;
constinit Thread closing, telling;

}  // namespace

Background& background_executor() {
    return closing.value.get([] { return std::make_unique<Background>("st-executor"); });
}

Background& request_executor() {
    return telling.value.get([] { return std::make_unique<Background>("st-requests"); });
}

}  // namespace shared_tensor
