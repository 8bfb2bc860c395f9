#include <ATen/core/Tensor.h>

#include <shared_tensor/bytes.hpp>
#include <shared_tensor/value.hpp>

#include "tensor/at_tensor.hpp"
#include "tensor/bool_check.hpp"
#include "tensor/medium.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

/// The elements as text, little endian, in order.
class Base64Medium final : public Medium {
public:
    Way way() const override { return Way::base64; }
    Viability viable() const override { return {}; }
    Viability carries(DType) const override { return {}; }

    Imported import(const Descriptor& descriptor, const Incoming&) const override {
        const std::uint64_t bytes = descriptor.extent.bytes;
        const Json& content = *descriptor.content;
        const auto size =
            content.is_string() ? decoded_base64_size(content.get_ref<const std::string&>()) : std::nullopt;
        if (!size) fail(described(content));
        if (*size != bytes) {
            throw InvalidValue("base64", "base64 of " + std::to_string(bytes) + " bytes (shape x item size)",
                               "base64 of " + std::to_string(*size) + " bytes");
        }
        at::Tensor tensor = allocate(descriptor.dtype, descriptor.shape);
        std::byte* out = mutable_bytes(tensor).data();
        if (!decode_base64_into(content.get_ref<const std::string&>(), out)) fail("other characters");
        check_bools(descriptor, out);
        return {make_plain_handle(tensor), bytes};
    }

    Exported export_to(const codec::TensorPointer& handle, OutgoingBody&) const override {
        const Dense values = dense(handle->tensor(), dtype_of(handle->tensor()));
        Exported exported{encode_base64(values.bytes), values.bytes.size()};
        exported.is_word = true;
        return exported;
    }

private:
    [[noreturn]] static void fail(std::string got) {
        throw InvalidValue("base64", "base64 string (RFC 4648, padded)", std::move(got));
    }
};

}  // namespace

const Medium& base64_medium() {
    static const Base64Medium kMedium;
    return kMedium;
}

}  // namespace shared_tensor::tensor
