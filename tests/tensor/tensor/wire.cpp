#include "wire.hpp"

#include <algorithm>

#include "tensor/handle.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::test {

using namespace tensor;

ExportPolicy only(Way way) {
    ExportPolicy policy;
    policy.accept = {way};
    return policy;
}

Wire send(const TensorRef& tensor, ExportPolicy policy) {
    TensorExchange exchange({}, std::move(policy));
    const Json json = exchange.describe(exchange.wrap(tensor));
    Wire wire{json.dump(), std::make_shared<std::vector<std::byte>>(), exchange.summary()};
    for (const auto& part : exchange.body().parts())
        wire.body->insert(wire.body->end(), part.bytes.begin(), part.bytes.end());
    return wire;
}

codec::TensorPointer receive(const Wire& wire) {
    TensorExchange exchange(wire.incoming());
    return exchange.import(Json::parse(wire.json));
}

bool identical(const TensorRef& a, const TensorRef& b) {
    if (a.dtype() != b.dtype() || !std::ranges::equal(a.shape(), b.shape())) return false;
    const Dense left = dense(a);
    const Dense right = dense(b);
    return std::equal(left.bytes.begin(), left.bytes.end(), right.bytes.begin(), right.bytes.end());
}

}  // namespace shared_tensor::test
