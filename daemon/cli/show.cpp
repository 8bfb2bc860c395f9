#include "cli/show.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include "protocol/json_rpc/json_text.hpp"
#include "tensor/element.hpp"
#include "tensor/layout.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::cli {

namespace {

using codec::Json;

constexpr std::size_t kLine = 100;  // maximum length of a short value in characters
constexpr std::size_t kStep = 2;

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

class ElementPrinter {
public:
    ElementPrinter(const Look& look, std::size_t indent)
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

/// The elements as nested lists; a large tensor shows the first and last three of each dimension. Lines after the first
/// are indented by `indent`.
std::string tensor_elements(const codec::TensorPointer& tensor, std::size_t indent) {
    return ElementPrinter(look_at(tensor), indent).print();
}

class Printer {
public:
    explicit Printer(const std::vector<codec::TensorPointer>& tensors) : tensors_(&tensors) {}

    std::string print(const Json& json) {
        print_value(json, 0);
        return std::move(text_);
    }

private:
    const codec::TensorPointer* tensor_in(const Json& json) const {
        if (tensors_->empty() || !json.is_object() || json.size() != 1 || json.begin().key() != "$tensor")
            return nullptr;
        return &tensors_->at(json.begin().value().get<std::size_t>());
    }

    bool is_short(const Json& json) const { return tensors_->empty() && compact(json).size() <= kLine; }

    void print_value(const Json& json, std::size_t indent) {
        if (const auto* tensor = tensor_in(json)) {
            text_ += tensor_title(*tensor) + "\n" + std::string(indent + kStep, ' ') +
                     tensor_elements(*tensor, indent + kStep);
        } else if (!json.is_structured() || json.empty() || is_short(json)) {
            text_ += compact(json);
        } else {
            print_members(json, indent);
        }
    }

    void print_members(const Json& json, std::size_t indent) {
        text_ += json.is_object() ? "{\n" : "[\n";
        for (auto member = json.begin(); member != json.end();) {
            text_.append(indent + kStep, ' ');
            if (json.is_object()) {
                json_rpc::print_json_string(member.key(), text_);
                text_ += ": ";
            }
            print_value(*member, indent + kStep);
            text_ += ++member == json.end() ? "\n" : ",\n";
        }
        text_.append(indent, ' ') += json.is_object() ? '}' : ']';
    }

    const std::vector<codec::TensorPointer>* tensors_;
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

std::string compact(const Json& json) {
    std::string text;
    json_rpc::print_json(json, text);
    return text;
}

std::string show(const Dynamic& value) {
    const Json& json = value.value.json;
    if (json.is_string()) return json.get<std::string>();
    if (!value.value.objects.empty()) return show_json(to_json(value));  // shows the handles of objects too
    const Json* plain = &json;
    if (json.is_object() && json.size() == 1 && json.begin().key() == "$literal") plain = &json.begin().value();
    return Printer(value.value.tensors).print(*plain);
}

std::string show_json(const Json& json) {
    static const std::vector<codec::TensorPointer> kNone;
    return Printer(kNone).print(json);
}

std::string show_duration(std::chrono::nanoseconds duration) {
    std::array<char, 64> text{};
    const double seconds = std::chrono::duration<double>(duration).count();
    const auto minutes = static_cast<long long>(seconds / 60);
    if (seconds < 1e-3) {
        (void)std::snprintf(text.data(), text.size(), "%.0f us", seconds * 1e6);
    } else if (seconds < 1) {
        (void)std::snprintf(text.data(), text.size(), "%.3g ms", seconds * 1e3);
    } else if (seconds < 120) {
        (void)std::snprintf(text.data(), text.size(), "%.3g s", seconds);
    } else if (minutes < 60) {
        (void)std::snprintf(text.data(), text.size(), "%lld min", minutes);
    } else {
        (void)std::snprintf(text.data(), text.size(), "%lld h %lld min", minutes / 60, minutes % 60);
    }
    return text.data();
}

}  // namespace shared_tensor::cli
