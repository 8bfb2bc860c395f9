#include <algorithm>
#include <memory>
#include <new>

#include "tensor/handle.hpp"
#include "tensor/memory.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::tensor {

namespace {

constexpr std::uint64_t kMostCompressed = DescriptorLimits().max_expanded_bytes;  // uncompressed, per message

/// Tensors as bytes after the JSON of the same message. An aligned tensor is read in place, and a contiguous tensor is
/// written from its own memory, without a copy.
class BodyTransport final : public Transport {
public:
    TransportKind kind() const override { return TransportKind::body; }

    Imported import(const Descriptor& descriptor, const Incoming& incoming) const override {
        if (is_compressed(descriptor)) return decompressed(descriptor, incoming);
        const Region region = parse_region(descriptor, incoming.body.size());
        if (descriptor.extent.elements == 0) return {make_handle(allocate(descriptor.dtype, descriptor.shape)), 0};
        const std::byte* data = incoming.body.data() + region.offset;
        check_bools(descriptor, data);
        if (!is_aligned(data, descriptor.dtype)) return copied(descriptor, data);
        return {make_handle(view_of(data, incoming.owner, descriptor.dtype, descriptor.shape, descriptor.strides)), 0};
    }

    Exported export_to(const codec::TensorPointer& handle, OutgoingBody& body) const override {
        Dense values = dense(handle->tensor());
        // The reader accepts at most kMostCompressed bytes from compressed tensors in one message.
        const bool fits =
            values.bytes.size() <= kMostCompressed - std::min(body.compressed().uncompressed, kMostCompressed);
        if (const auto smaller = compress_if_smaller(values.bytes, fits ? body.compression() : Compression())) {
            body.note_compressed(smaller->size, values.bytes.size());
            const Region region = body.add(smaller->bytes(), smaller->owner);
            return {"{" + region_members(region) + R"(,"coding":"zstd"})", values.copied + region.size};
        }
        const Region region = body.add(values.bytes, values.tensor.owner());
        return {"{" + region_members(region) + "}", values.copied};
    }

private:
    /// Imports a contiguous tensor whose bytes are compressed.
    static Imported decompressed(const Descriptor& descriptor, const Incoming& incoming) {
        if (descriptor.content->size() != 3)
            throw InvalidValue("body", "object with coding, offset and size", "other members");
        const Region region{region_natural(descriptor, "offset"), region_natural(descriptor, "size")};
        const std::uint64_t available = incoming.body.size();
        if (region.offset > available || region.size > available - region.offset) {
            throw InvalidValue("body.size", "bytes inside the " + std::to_string(available) + " that are there",
                               std::to_string(region.offset) + " + " + std::to_string(region.size));
        }
        const std::string& coding = region_text(descriptor, "coding");
        if (coding != "zstd") throw InvalidValue("body.coding", "\"zstd\"", coding);
        if (!descriptor.strides.empty())
            throw InvalidValue("strides", "those of a contiguous tensor, or none: its bytes are compressed", "others");
        struct Held {
            std::shared_ptr<const void> share;
            TensorRef tensor;
        };
        const auto held = std::make_shared<Held>();
        if (incoming.hold) held->share = incoming.hold(descriptor.extent.bytes);
        if (incoming.hold && held->share == nullptr) throw std::bad_alloc();
        held->tensor = allocate(descriptor.dtype, descriptor.shape);
        const auto out = mutable_bytes(held->tensor);
        try {
            decompress_zstd(
                incoming.body.subspan(static_cast<std::size_t>(region.offset), static_cast<std::size_t>(region.size)),
                out);
        } catch (const BadCompression& error) {
            throw InvalidValue("body", std::to_string(out.size()) + " bytes (shape x item size), compressed by zstd",
                               error.what());
        }
        check_bools(descriptor, out.data());
        if (out.empty()) return {make_handle(held->tensor), 0, region.size};
        return {make_handle(view_of(out.data(), held, descriptor.dtype, descriptor.shape, {})), out.size(),
                region.size};
    }

    static Imported copied(const Descriptor& descriptor, const std::byte* data) {
        TensorRef tensor = allocate(descriptor.dtype, descriptor.shape);
        const Shape strides = descriptor.strides.empty() ? contiguous_strides(descriptor.shape) : descriptor.strides;
        gather(data, descriptor.shape, strides, size_of(descriptor.dtype), mutable_bytes(tensor).data());
        return {make_handle(tensor), descriptor.extent.bytes};
    }
};

}  // namespace

const Transport& body_transport() {
    static const BodyTransport kTransport;
    return kTransport;
}

}  // namespace shared_tensor::tensor
