// libFuzzer entry for the bytes of tensors that an untrusted client sends: a descriptor on the first line and a body
// behind it, a .npy file, a safetensors file behind "safetensors:", a set behind "manifest:", a message's frame behind
// "frame:", a descriptor of shared memory behind "shm:" and the memory behind that, or one of device memory behind
// "cuda_ipc:". Beyond not crashing it holds: every element of what was taken can be read, and it arrives unchanged when
// it is sent on in any way.

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <shared_tensor/simulated.hpp>
#include <shared_tensor/value.hpp>

#include "protocol/codec/frame.hpp"
#include "protocol/codec/json_source.hpp"
#include "require.hpp"
#include "support/tensors.hpp"
#include "tensor/device/lent_blocks.hpp"
#include "tensor/files/tensor_file.hpp"
#include "tensor/files/tensor_set.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"
#include "tensor/transports/shm_transport.hpp"

namespace {

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

constexpr DescriptorLimits kLimits{.max_expanded_bytes = 1 << 16};

/// In memory of exactly its size, so that a step outside is seen.
using Bytes = std::vector<std::byte>;
std::shared_ptr<Bytes> own(std::string_view bytes) {
    const auto data = std::as_bytes(std::span(bytes));
    return std::make_shared<Bytes>(data.begin(), data.end());
}

/// Lists have one NaN only, so what came by them is compared with what comes once more.
void check_sending(const TensorRef& tensor) {
    for (const TransportKind transport : {TransportKind::base64, TransportKind::body})
        require(identical(receive(send(tensor, only(transport))), tensor), "dtype, shape and elements arrive");
    if (tensor.dtype() == DType::float4_e2m1fn_x2) return;
    const TensorRef once = receive(send(tensor, only(TransportKind::data)));
    require(identical(receive(send(once, only(TransportKind::data))), once), "numbers arrive as text");
}

/// What is read without JSON is what its JSON says.
void check_short_cut(std::string_view text) {
    const auto read = tensor::read_shm_descriptor(text, kLimits);
    if (!read) return;
    const Json json = Json::parse(text);
    const tensor::Descriptor judged = tensor::parse_descriptor(json, kLimits);
    require(judged.transport == TransportKind::shm && read->lease == judged.lease && read->device == judged.device,
            "one tensor");
    require(read->dtype == judged.dtype && read->shape == judged.shape && read->strides == judged.strides, "one shape");
    require(read->place.segment == tensor::region_text(judged, "segment"), "one segment");
    require(read->place.region.offset == tensor::region_natural(judged, "offset"), "one offset");
    require(read->place.region.size == tensor::region_natural(judged, "size"), "one size");
}

/// The descriptor is read with `body` beside it, by these transports; what is taken can be sent on.
void check_import(std::string_view text, const std::shared_ptr<Bytes>& body,
                  const Transports& transports = inline_transports()) {
    check_short_cut(text);
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) return;
    try {
        check_sending(TensorTransfer({*body, body}, {}, kLimits, transports).import(json)->tensor());
    } catch (const InvalidValue& error) {
        require(!error.expected.empty() && !error.got.empty(), "a rejection says what was expected and what came");
        require(!Json(error.what()).dump().empty(), "a rejection's text is UTF-8");
    }
}

/// The first line, and the bytes behind it in memory of their own.
std::pair<std::string_view, std::shared_ptr<Bytes>> line_and_bytes(std::string_view input) {
    const std::string_view line = input.substr(0, input.find('\n'));
    return {line, own(input.substr(std::min(line.size() + 1, input.size())))};
}

void fuzz_descriptor(std::string_view input) {
    const auto [text, body] = line_and_bytes(input);
    check_import(text, body);
}

/// A message as it comes over HTTP: its JSON is one descriptor.
void fuzz_frame(std::string_view input) {
    const auto bytes = own(input);
    const auto frame = codec::split_frame(*bytes);
    if (!frame) return;
    require(frame->json.size() + frame->tensors.size() + 8 == bytes->size(), "every byte of a frame has its place");
    const std::string head = codec::frame_head(frame->json);
    const auto again = codec::split_frame(std::as_bytes(std::span(head)));
    require(again && again->json == frame->json && again->tensors.empty(), "a frame's head is read as it is written");
    check_import(frame->json, std::make_shared<Bytes>(frame->tensors.begin(), frame->tensors.end()));
}

/// A peer with one segment, called "g".
class OneSegment final : public ShmPeer {
public:
    explicit OneSegment(std::shared_ptr<Bytes> memory) : memory_(std::move(memory)) {}
    Viability viable() const override { return {}; }
    Borrowed borrow(const std::string& segment, const std::string&) override {
        if (segment != "g") throw InvalidValue("shm.segment", "a segment that was offered", "an unknown one");
        return {memory_->data(), memory_->size(), memory_};
    }
    local::PooledSegmentPointer take(std::uint64_t) override { throw CannotLend("nothing is lent here"); }
    std::optional<local::SegmentPlace> find(const void*, std::uint64_t) const override { return std::nullopt; }
    Lending lend(local::SegmentUsePointer, std::uint64_t, const codec::TensorPointer&) override {
        throw CannotLend("nothing is lent here");
    }

private:
    const std::shared_ptr<Bytes> memory_;
};

void fuzz_shm(std::string_view input) {
    const auto [text, memory] = line_and_bytes(input);
    OneSegment peer(memory);
    const auto transport = make_shm_transport(peer);
    check_import(text, std::make_shared<Bytes>(), Transports({transport.get()}));
}

class AnyDevicePeer final : public DevicePeer {
public:
    Viability viable() const override { return {}; }
    bool sees(const std::string&) const override { return true; }
    std::function<void()> use(const std::string&) override {
        return [] {};
    }
    Lending lend(std::shared_ptr<const LentBlock> block) override {
        lent_.push_back(std::move(block));
        return {"l-1", nullptr};
    }

private:
    std::vector<std::shared_ptr<const LentBlock>> lent_;
};

/// Memory of a simulated device, handed over by this process to itself: a handle that is right cannot be guessed, so an
/// input says "@handle" where it wants the right one, and likewise for each other member.
class OwnDevice {
public:
    OwnDevice() {
        simulated::enable(1);
        TensorTransfer transfer({}, only(TransportKind::cuda_ipc), {}, transports_);
        right_ = transfer.describe(transfer.wrap(simulated::to_device(arange<float>({1000}))));
    }
    const Transports& transports() const { return transports_; }

    std::string completed(std::string_view text) const {
        std::string result(text);
        complete(result, "@device", right_["device"]);
        for (const auto& [name, value] : right_["cuda_ipc"].items())
            complete(result, '@' + name, value);
        return result;
    }

private:
    static void complete(std::string& text, const std::string& name, const Json& value) {
        const std::string wanted = Json(name).dump();
        if (const auto at = text.find(wanted); at != text.npos) text.replace(at, wanted.size(), value.dump());
    }

    AnyDevicePeer peer_;
    const std::unique_ptr<Transport> transport_ = make_cuda_ipc_transport(peer_);
    const Transports transports_{{transport_.get()}};
    Json right_;
};

void fuzz_cuda_ipc(std::string_view input) {
    static const auto* const kDevice = new OwnDevice;
    check_import(kDevice->completed(input), std::make_shared<Bytes>(), kDevice->transports());
}

void fuzz_npy(std::string_view input) {
    const auto file = own(input);
    try {
        check_sending(read_npy(*file, file));
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
    const auto [text, body] = line_and_bytes(input);
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) return;
    TensorTransfer port;
    const codec::JsonSource source(port);
    try {
        Manifest manifest = read_manifest(ValueReader(source, codec::JsonSource::node(json)), body->size(), 100);
        const auto data =
            make_handle(view_of(body->data(), body, DType::uint8, Shape{static_cast<std::int64_t>(body->size())}, {}));
        const TensorSet set = copy_set(std::move(manifest), data, plain_block);
        for (const auto& [name, member] : set.manifest)
            check_sending(member_of(set, member)->tensor());
    } catch (const InvalidValue& error) {
        require(!error.expected.empty() && !error.got.empty(), "a rejection says what was expected and what came");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    struct Kind {
        std::string_view prefix;
        void (*fuzz)(std::string_view);
    };
    static constexpr Kind kKinds[] = {{"safetensors:", fuzz_safetensors},
                                      {"manifest:", fuzz_manifest},
                                      {"frame:", fuzz_frame},
                                      {"shm:", fuzz_shm},
                                      {"cuda_ipc:", fuzz_cuda_ipc}};
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    for (const Kind& kind : kKinds) {
        if (!input.starts_with(kind.prefix)) continue;
        kind.fuzz(input.substr(kind.prefix.size()));
        return 0;
    }
    if (input.starts_with("\x93NUMPY")) {
        fuzz_npy(input);
    } else {
        fuzz_descriptor(input);
    }
    return 0;
}
