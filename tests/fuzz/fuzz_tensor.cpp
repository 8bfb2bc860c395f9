// libFuzzer entry for the bytes of tensors that a stranger sends: a descriptor on the first line and a body behind it,
// a .npy file, a safetensors file behind "safetensors:", or a set behind "manifest:". Beyond not crashing it holds:
// every element of what was taken can be read, and it arrives unchanged when it is sent on in any way.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include <shared_tensor/value.hpp>

#include "codec/json_source.hpp"
#include "tensor/at_tensor.hpp"
#include "tensor/exchange.hpp"
#include "tensor/memory.hpp"
#include "tensor/npy.hpp"
#include "tensor/safetensors.hpp"
#include "tensor/tensor_set.hpp"

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

/// The header of a safetensors file: what was taken can be written, and is the same when it is read again.
void fuzz_safetensors(std::string_view file) {
    std::array<std::byte, 8> prefix{};
    if (file.size() < prefix.size()) return;
    std::memcpy(prefix.data(), file.data(), prefix.size());
    try {
        const auto size = static_cast<std::size_t>(safetensors_json_size(prefix, file.size()));
        const std::uint64_t bytes = file.size() - 8 - size;
        const SafetensorsHeader header = parse_safetensors_header(file.substr(8, size), bytes);
        std::uint64_t sum = 0;
        for (const auto& [name, member] : header.manifest) {
            require(member.offset <= bytes && member.bytes <= bytes - member.offset, "members lie inside the file");
            sum += member.bytes;
        }
        require(sum == bytes, "every byte belongs to one member");
        const std::string text = plan_safetensors(header.manifest, header.metadata).header;
        const SafetensorsHeader again = parse_safetensors_header(std::string_view(text).substr(8), bytes);
        require(again.metadata == header.metadata, "the metadata comes back");
        require(again.manifest.size() == header.manifest.size(), "the members come back");
        for (const auto& [name, member] : header.manifest) {
            const auto found = again.manifest.find(name);
            require(found != again.manifest.end() && found->second.dtype == member.dtype &&
                        found->second.shape == member.shape,
                    "a member comes back");
        }
    } catch (const SafetensorsError&) {
    }
}

/// The manifest of a set on the first line, its bytes behind it.
void fuzz_manifest(std::string_view input) {
    const std::string_view text = input.substr(0, input.find('\n'));
    const auto body = own(input.substr(std::min(text.size() + 1, input.size())));
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) return;
    TensorExchange port;
    const codec::JsonSource source(port);
    try {
        Manifest manifest = read_manifest(ValueReader(source, codec::JsonSource::node(json)), body->size(), 100);
        const auto data = make_plain_handle(
            view_of(body->data(), body, DType::uint8, Shape{static_cast<std::int64_t>(body->size())}, {}));
        const TensorSet set = copy_set(std::move(manifest), data, plain_block);
        for (const auto& [name, member] : set.manifest)
            check_sending(member_of(set, member));
    } catch (const InvalidValue& error) {
        require(!error.expected.empty() && !error.got.empty(), "a refusal says what was expected and what came");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    constexpr std::string_view kSafetensors = "safetensors:", kManifest = "manifest:";
    if (input.starts_with("\x93NUMPY")) {
        fuzz_npy(input);
    } else if (input.starts_with(kSafetensors)) {
        fuzz_safetensors(input.substr(kSafetensors.size()));
    } else if (input.starts_with(kManifest)) {
        fuzz_manifest(input.substr(kManifest.size()));
    } else {
        fuzz_descriptor(input);
    }
    return 0;
}
