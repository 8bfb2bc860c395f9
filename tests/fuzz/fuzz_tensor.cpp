// libFuzzer entry for the bytes of tensors that a stranger sends: a descriptor on the first line and a body behind it,
// or a .npy file. Beyond not crashing it holds: every element of what was taken can be read, and it arrives unchanged
// when it is sent on in any way.

#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include <shared_tensor/value.hpp>

#include "tensor/at_tensor.hpp"
#include "tensor/exchange.hpp"
#include "tensor/memory.hpp"
#include "tensor/npy.hpp"

namespace {

using namespace shared_tensor;
using namespace shared_tensor::tensor;

constexpr DescriptorLimits kLimits{.max_expanded_bytes = 1 << 16};

void require(bool holds, const char* property) {
    if (holds) return;
    std::cerr << "does not hold: " << property << '\n';
    std::abort();
}

/// In memory of exactly its size, so that a step outside is seen.
using Bytes = std::vector<std::byte>;
std::shared_ptr<Bytes> own(std::string_view bytes) {
    const auto data = std::as_bytes(std::span(bytes));
    return std::make_shared<Bytes>(data.begin(), data.end());
}

Bytes elements(const at::Tensor& tensor) {
    const Dense values = dense(tensor, tensor::dtype_of(tensor));
    return {values.bytes.begin(), values.bytes.end()};
}

/// Through a message of that way. Lists have one NaN only, so they are compared with themselves.
codec::TensorPointer sent(const codec::TensorPointer& tensor, Way way) {
    ExportPolicy policy;
    policy.accept = {way};
    TensorExchange out({}, policy);
    const Json json = Json::parse(out.describe(tensor).dump());
    auto body = std::make_shared<Bytes>();
    for (const BodyPart& part : out.body().parts())
        body->insert(body->end(), part.bytes.begin(), part.bytes.end());
    return TensorExchange({*body, body}).import(json);
}

void check_sending(const codec::TensorPointer& tensor) {
    const Bytes before = elements(tensor->tensor());
    for (const Way way : {Way::base64, Way::body}) {
        const auto after = sent(tensor, way);
        require(after->tensor().sizes() == tensor->tensor().sizes(), "the shape arrives");
        require(elements(after->tensor()) == before, "the elements arrive");
    }
    if (tensor::dtype_of(tensor->tensor()) == DType::float4_e2m1fn_x2) return;
    const auto once = sent(tensor, Way::data);
    require(elements(sent(once, Way::data)->tensor()) == elements(once->tensor()), "numbers arrive as text");
}

void fuzz_descriptor(std::string_view input) {
    const std::string_view text = input.substr(0, input.find('\n'));
    const auto body = own(input.substr(std::min(text.size() + 1, input.size())));
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) return;
    try {
        check_sending(TensorExchange({*body, body}, {}, kLimits).import(json));
    } catch (const InvalidValue& error) {
        require(!error.expected.empty() && !error.got.empty(), "a refusal says what was expected and what came");
        require(!Json(error.what()).dump().empty(), "a refusal's text is UTF-8");
    }
}

void fuzz_npy(std::string_view input) {
    const auto file = own(input);
    try {
        check_sending(make_plain_handle(read_npy(*file, file)));
    } catch (const NpyError&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    input.starts_with("\x93NUMPY") ? fuzz_npy(input) : fuzz_descriptor(input);
    return 0;
}
