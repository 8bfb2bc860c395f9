#include <span>

#include <shared_tensor/value.hpp>

#include "tensor/element.hpp"
#include "tensor/element_reader.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"
#include "tensor/transports/transport.hpp"

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
          pieces_(ElementReader(tensor), 0, tensor->bytes()),
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
    Viability carries(DType dtype) const override {
        if (element_codec(dtype) != nullptr) return {};
        return {std::string(name_of(dtype)) + " has two values in a byte and no form as lists"};
    }

    Imported import(const Descriptor& descriptor, const Incoming&) const override {
        const Json& lists = *descriptor.content;
        // [] is accepted for any shape without elements: a tensor of shape [2^40, 0] could not be written otherwise.
        const bool nothing = descriptor.extent.elements == 0 && lists.is_array() && lists.empty();
        ListReader reader(descriptor);
        if (!nothing) reader.check(lists);
        TensorRef tensor = allocate(descriptor.dtype, descriptor.shape);
        std::byte* out = mutable_bytes(tensor).data();
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
};

}  // namespace

const Transport& data_transport() {
    static const DataTransport kTransport;
    return kTransport;
}

}  // namespace shared_tensor::tensor
