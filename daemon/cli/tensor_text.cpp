#include "cli/tensor_text.hpp"

#include <cstddef>
#include <span>

#include "protocol/json_rpc/json_text.hpp"
#include "tensor/dtype.hpp"
#include "tensor/element.hpp"
#include "tensor/layout.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::cli {

namespace {

constexpr std::uint64_t kShownWhole = 60;  // maximum number of elements that are all shown
constexpr std::int64_t kEdge = 3;

/// The properties and bytes of a tensor, from its descriptor.
struct Look {
    tensor::DType dtype;
    tensor::Shape shape;
    std::span<const std::byte> bytes;  // contiguous
    tensor::TensorTransfer transfer;   // keeps the bytes alive
};

Look look_at(const codec::TensorPointer& tensor) {
    tensor::ExportPolicy policy;
    policy.accept = {tensor::TransportKind::body};
    Look look{tensor::DType::float32, {}, {}, tensor::TensorTransfer({}, policy)};
    const codec::Json descriptor = look.transfer.describe(tensor);
    look.dtype = *tensor::parse_dtype(descriptor.at("dtype").get_ref<const std::string&>());
    look.shape = descriptor.at("shape").get<tensor::Shape>();
    if (!look.transfer.body().parts().empty()) look.bytes = look.transfer.body().parts().front().bytes;
    return look;
}

class Printer {
public:
    Printer(const Look& look, std::size_t indent)
        : look_(&look),
          strides_(tensor::contiguous_strides(look.shape)),
          codec_(tensor::element_codec(look.dtype)),
          item_(tensor::size_of(look.dtype)),
          indent_(indent) {
        std::uint64_t elements = 1;
        for (const auto size : look.shape)
            elements *= static_cast<std::uint64_t>(size);
        short_ = elements > kShownWhole || elements == 0;  // an empty tensor may have many empty rows
    }

    std::string print() {
        print_dimension(0, 0);
        return std::move(text_);
    }

private:
    void print_element(std::int64_t index) {
        const std::byte* at = look_->bytes.data() + static_cast<std::size_t>(index) * item_;
        if (codec_ == nullptr) {  // two small numbers in a byte: shows the byte
            text_ += std::to_string(std::to_integer<unsigned>(*at));
        } else if (const auto json = codec_->print(at); json.is_string()) {
            text_ += json.get_ref<const std::string&>();  // e.g. NaN
        } else {
            json_rpc::print_json(json, text_);
        }
    }

    void print_dimension(std::size_t dimension, std::int64_t offset) {
        if (dimension == look_->shape.size()) return print_element(offset);
        const std::int64_t size = look_->shape[dimension];
        const bool last = dimension + 1 == look_->shape.size();
        text_ += '[';
        for (std::int64_t i = 0; i < size; ++i) {
            if (i > 0) separate(dimension, last);
            if (short_ && size > 2 * kEdge && i == kEdge) {
                text_ += "...";
                i = size - kEdge;
                separate(dimension, last);
            }
            print_dimension(dimension + 1, offset + i * strides_[dimension]);
        }
        text_ += ']';
    }

    void separate(std::size_t dimension, bool last) {
        text_ += last ? ", " : ",\n" + std::string(indent_ + dimension + 1, ' ');
    }

    const Look* look_;
    tensor::Shape strides_;
    const tensor::ElementCodec* codec_;
    std::size_t item_, indent_;
    bool short_ = false;
    std::string text_;
};

}  // namespace

std::string tensor_title(const codec::TensorPointer& tensor) {
    const Look look = look_at(tensor);
    std::string text = "tensor " + std::string(tensor::name_of(look.dtype)) + " [";
    for (std::size_t i = 0; i < look.shape.size(); ++i)
        text += (i > 0 ? ", " : "") + std::to_string(look.shape[i]);
    return text + "]";
}

std::string tensor_elements(const codec::TensorPointer& tensor, std::size_t indent) {
    return Printer(look_at(tensor), indent).print();
}

}  // namespace shared_tensor::cli
