#include "wire.hpp"

#include <algorithm>

#include "tensor/handle.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::test {

using namespace tensor;

ExportPolicy only(TransportKind transport) {
    ExportPolicy policy;
    policy.accept = {transport};
    return policy;
}

Stream send(const TensorRef& tensor, ExportPolicy policy) {
    TensorTransfer transfer({}, std::move(policy));
    const Json json = transfer.describe(transfer.wrap(tensor));
    Stream stream{json.dump(), std::make_shared<std::vector<std::byte>>(), transfer.summary()};
    for (const auto& part : transfer.body().parts())
        stream.body->insert(stream.body->end(), part.bytes.begin(), part.bytes.end());
    return stream;
}

codec::TensorPointer receive(const Stream& stream) {
    TensorTransfer transfer(stream.incoming());
    return transfer.import(Json::parse(stream.json));
}

bool identical(const TensorRef& a, const TensorRef& b) {
    if (a.dtype() != b.dtype() || !std::ranges::equal(a.shape(), b.shape())) return false;
    const Dense left = dense(a);
    const Dense right = dense(b);
    return std::equal(left.bytes.begin(), left.bytes.end(), right.bytes.begin(), right.bytes.end());
}

}  // namespace shared_tensor::test
