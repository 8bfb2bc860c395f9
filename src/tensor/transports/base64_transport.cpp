#include <algorithm>
#include <span>
#include <vector>

#include <shared_tensor/bytes.hpp>
#include <shared_tensor/value.hpp>

#include "tensor/element_reader.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::tensor {

namespace {

/// Writes bytes, which come in pieces of any size, as one base64 text.
class Base64Text {
public:
    explicit Base64Text(json_rpc::LongText& out) : out_(out) {}

    void add(std::span<const std::byte> bytes) {
        while (!bytes.empty() && (!rest_.empty() || bytes.size() < kGroup)) {
            rest_.push_back(bytes.front());
            bytes = bytes.subspan(1);
            if (rest_.size() == kGroup) finish();
        }
        while (bytes.size() >= kGroup) {
            const auto some = bytes.first(std::min(kAtOnce, bytes.size() / kGroup * kGroup));
            out_ += encode_base64(some);
            bytes = bytes.subspan(some.size());
        }
        rest_.insert(rest_.end(), bytes.begin(), bytes.end());
    }
    void finish() {
        out_ += encode_base64(rest_);
        rest_.clear();
    }

private:
    static constexpr std::size_t kGroup = 3, kAtOnce = kGroup << 14;

    json_rpc::LongText& out_;
    std::vector<std::byte> rest_;  // fewer bytes than a group
};

/// Tensors as base64 text of their elements: little endian, in C order.
class Base64Transport final : public Transport {
public:
    TransportKind kind() const override { return TransportKind::base64; }

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
        TensorRef tensor = allocate(descriptor.dtype, descriptor.shape);
        std::byte* out = mutable_bytes(tensor).data();
        if (!decode_base64_into(content.get_ref<const std::string&>(), out)) fail("other characters");
        check_bools(descriptor, out);
        return {make_handle(tensor), bytes};
    }

    Exported export_to(const codec::TensorPointer& handle, OutgoingBody&) const override {
        Exported exported{{}, handle->bytes()};
        exported.print = [handle](json_rpc::LongText& out) { print(handle, out); };
        return exported;
    }

private:
    static void print(const codec::TensorPointer& handle, json_rpc::LongText& out) {
        const ElementReader elements(handle);
        const std::uint64_t size = elements.size();
        out.expect(static_cast<std::size_t>((size + 2) / 3 * 4 + 2));  // with the quotes
        out += '"';
        Base64Text text(out);
        if (elements.data() != nullptr) {
            text.add({elements.data(), static_cast<std::size_t>(size)});
        } else {
            ElementPieces pieces(elements, 0, size);
            for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next())
                text.add(piece);
        }
        text.finish();
        out += '"';
    }
    [[noreturn]] static void fail(std::string got) {
        throw InvalidValue("base64", "base64 string (RFC 4648, padded)", std::move(got));
    }
};

}  // namespace

const Transport& base64_transport() {
    static const Base64Transport kTransport;
    return kTransport;
}

}  // namespace shared_tensor::tensor
