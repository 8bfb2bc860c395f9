#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include <shared_tensor/bytes.hpp>
#include <shared_tensor/value.hpp>

#include "tensor/element.hpp"
#include "tensor/element_reader.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"
#include "tensor/transports/transport.hpp"

// The transports that need only the message: data, base64 and body.

namespace shared_tensor::tensor {

namespace {

/// Reads nested lists, and keeps the indices of its place in them for error messages.
class ListReader {
public:
    explicit ListReader(const Descriptor& descriptor)
        : shape_(descriptor.shape), item_size_(size_of(descriptor.dtype)), codec_(*element_codec(descriptor.dtype)) {}

    /// Checks that the lengths of the lists match the shape. Called before the tensor is allocated: a short text, such
    /// as [[1, 2, 3], [], [], ...], must not allocate the memory of a large tensor.
    void check(const Json& json) {
        const std::size_t depth = place_.size();
        if (depth == shape_.size()) return;
        const auto wanted = static_cast<std::size_t>(shape_[depth]);
        if (!json.is_array() || json.size() != wanted) fail(json, "array of " + std::to_string(wanted));
        if (depth + 1 < shape_.size()) each(json, [&](const Json& element) { check(element); });
    }

    /// Reads the elements of checked lists.
    void read(const Json& json, std::byte*& out) {
        if (place_.size() < shape_.size()) return each(json, [&](const Json& element) { read(element, out); });
        if (!codec_.read(json, out)) fail(json, codec_.expected());
        out += item_size_;
    }

private:
    template <class Visit>
    void each(const Json& list, Visit visit) {
        place_.push_back(0);
        for (const Json& element : list) {
            visit(element);
            ++place_.back();
        }
        place_.pop_back();
    }

    [[noreturn]] void fail(const Json& json, std::string expected) const {
        std::string path = "data";
        for (const std::size_t index : place_)
            path.append("[").append(std::to_string(index)).append("]");
        throw InvalidValue(std::move(path), std::move(expected), described(json));
    }

    ShapeView shape_;
    std::size_t item_size_;
    const ElementCodec& codec_;
    std::vector<std::size_t> place_;
};

/// Prints a tensor's elements as nested lists, and reads the tensor piece by piece.
class ListPrinter {
public:
    ListPrinter(const codec::TensorPointer& tensor, json_rpc::LongText& out)
        : item_size_(size_of(tensor->tensor().dtype())),
          codec_(*element_codec(tensor->tensor().dtype())),
          pieces_(ElementReader(tensor)),
          out_(out) {}

    void print(ShapeView shape) {
        if (shape.empty()) return json_rpc::print_json(codec_.print(next()), out_);
        for (std::int64_t i = 0; i < shape[0]; ++i) {
            out_ += i == 0 ? '[' : ',';
            print(shape.subspan(1));
        }
        out_ += ']';
    }

private:
    static_assert(ElementPieces::kPiece % 16 == 0, "no element crosses the end of a piece");

    const std::byte* next() {
        if (piece_.empty()) piece_ = pieces_.next();
        const std::byte* const element = piece_.data();
        piece_ = piece_.subspan(item_size_);
        return element;
    }

    const std::size_t item_size_;
    const ElementCodec& codec_;
    ElementPieces pieces_;
    std::span<const std::byte> piece_;  // the rest that is not printed yet
    json_rpc::LongText& out_;
};

/// Tensors as nested JSON lists, which people can read and write.
class DataTransport final : public Transport {
public:
    TransportKind kind() const override { return TransportKind::data; }
    Viability fits(const codec::TensorHandle& handle) const override { return fits(handle.tensor().dtype()); }

    Imported import(const Descriptor& descriptor, const Incoming&) const override {
        if (const Viability can = fits(descriptor.dtype); !can)
            throw InvalidValue("data", "another transport for this dtype", "data, but " + can.reason);
        const Json& lists = *descriptor.content;
        // [] is accepted for any shape without elements: a tensor of shape [2^40, 0] could not be written otherwise.
        const bool nothing = descriptor.extent.elements == 0 && lists.is_array() && lists.empty();
        ListReader reader(descriptor);
        if (!nothing) reader.check(lists);
        TensorRef tensor = allocate(descriptor.dtype, descriptor.shape);
        std::byte* out = tensor.mutable_data();
        if (!nothing) reader.read(lists, out);
        return {make_handle(tensor), descriptor.extent.bytes};
    }

    Exported export_to(const codec::TensorPointer& handle, OutgoingBody&) const override {
        if (handle->tensor().elements() == 0) return {"[]", 0};
        Exported exported{{}, handle->bytes()};
        exported.print = [handle](json_rpc::LongText& out) {
            ListPrinter(handle, out).print(handle->tensor().shape());
        };
        return exported;
    }

private:
    static Viability fits(DType dtype) {
        if (element_codec(dtype) != nullptr) return {};
        return {std::string(name_of(dtype)) + " has two values in a byte and no form as lists"};
    }
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
        std::byte* out = tensor.mutable_data();
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
        constexpr std::size_t kAtOnce = std::size_t{3} << 14;  // whole groups of base64
        static_assert(ElementPieces::kPiece % kAtOnce == 0);
        out.expect(static_cast<std::size_t>((handle->bytes() + 2) / 3 * 4 + 2));  // with the quotes
        out += '"';
        ElementPieces pieces{ElementReader(handle)};
        for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
            for (; !piece.empty(); piece = piece.subspan(std::min(kAtOnce, piece.size())))
                out += encode_base64(piece.first(std::min(kAtOnce, piece.size())));
        }
        out += '"';
    }
    [[noreturn]] static void fail(std::string got) {
        throw InvalidValue("base64", "base64 string (RFC 4648, padded)", std::move(got));
    }
};

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
        if (!is_aligned(data, descriptor.dtype)) return copied(descriptor, data, incoming);
        return {make_handle(view_of(data, incoming.owner, descriptor.dtype, descriptor.shape, descriptor.strides)), 0};
    }

    Exported export_to(const codec::TensorPointer& handle, OutgoingBody& body) const override {
        Dense values = dense(handle->tensor());
        // The reader accepts at most kMostCompressed bytes from compressed tensors in one message.
        const bool fits =
            values.bytes.size() <= kMostCompressed - std::min(body.compressed().uncompressed_out, kMostCompressed);
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
        const Region region = parse_region(descriptor, incoming.body.size(), {"coding"});
        const std::string& coding = region_text(descriptor, "coding");
        if (coding != "zstd") throw InvalidValue("body.coding", "\"zstd\"", coding);
        if (!descriptor.strides.empty())
            throw InvalidValue("strides", "those of a contiguous tensor, or none: its bytes are compressed", "others");
        const auto held = allocate_held(descriptor, incoming);
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

    static Imported copied(const Descriptor& descriptor, const std::byte* data, const Incoming& incoming) {
        const auto held = allocate_held(descriptor, incoming);
        const Shape strides = descriptor.strides.empty() ? contiguous_strides(descriptor.shape) : descriptor.strides;
        std::byte* const out = held->tensor.mutable_data();
        gather(data, descriptor.shape, strides, size_of(descriptor.dtype), out);
        return {make_handle(view_of(out, held, descriptor.dtype, descriptor.shape, {})), descriptor.extent.bytes};
    }

    /// New memory for a tensor, and its share of the bytes that may be in flight.
    struct Held {
        std::shared_ptr<const void> share;
        TensorRef tensor;
    };
    static std::shared_ptr<Held> allocate_held(const Descriptor& descriptor, const Incoming& incoming) {
        const auto held = std::make_shared<Held>();
        if (incoming.hold) held->share = incoming.hold(descriptor.extent.bytes);
        if (incoming.hold && held->share == nullptr) throw std::bad_alloc();
        held->tensor = allocate(descriptor.dtype, descriptor.shape);
        return held;
    }
};

}  // namespace

Transports::Transports(std::vector<const Transport*> others, Reasons absent)
    : transports_(std::move(others)), absent_(std::move(absent)) {
    static const DataTransport kData;
    static const Base64Transport kBase64;
    static const BodyTransport kBody;
    transports_.insert(transports_.end(), {&kData, &kBase64, &kBody});
}

const Transports& inline_transports() {
    static const Transports kTransports;
    return kTransports;
}

}  // namespace shared_tensor::tensor
