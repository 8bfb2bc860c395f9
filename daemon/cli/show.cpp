#include "cli/values.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include "protocol/json_rpc/json_text.hpp"
#include "tensor/element.hpp"
#include "tensor/element_reader.hpp"
#include "tensor/files/tensor_set.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::cli {

namespace {

using codec::Json;

constexpr std::size_t kLine = 100;  // maximum length of a short value in characters
constexpr std::size_t kStep = 2;

constexpr std::uint64_t kShownWhole = 60;  // maximum number of elements that are all shown
constexpr std::int64_t kEdge = 3;

codec::TensorPointer in_host_memory(const codec::TensorPointer& tensor) {
    const bool is_there = tensor->bytes() == 0 || tensor::ElementReader(tensor).data() != nullptr;
    return is_there ? tensor : tensor::copy_own_tensor(tensor, tensor::plain_block);
}

/// Prints the elements as nested lists; a large tensor shows the first and last three of each dimension. Lines after
/// the first are indented by `indent`.
class ElementPrinter {
public:
    ElementPrinter(const codec::TensorPointer& tensor, std::size_t indent)
        : elements_(in_host_memory(tensor)),
          shape_(tensor::shape_of(tensor)),
          strides_(tensor::contiguous_strides(shape_)),
          codec_(tensor::element_codec(tensor->tensor().dtype())),
          item_(size_of(tensor->tensor().dtype())),
          indent_(indent) {
        const std::uint64_t elements = tensor->tensor().elements();
        short_ = elements > kShownWhole || elements == 0;  // an empty tensor may have many empty rows
    }

    std::string print() {
        print_dimension(0, 0);
        return std::move(text_);
    }

private:
    void print_element(std::int64_t index) {
        const std::byte* at = elements_.data() + static_cast<std::size_t>(index) * item_;
        if (codec_ == nullptr) {  // two small numbers in a byte: shows the byte
            text_ += std::to_string(std::to_integer<unsigned>(*at));
        } else if (const auto json = codec_->print(at); json.is_string()) {
            text_ += json.get_ref<const std::string&>();  // e.g. NaN
        } else {
            json_rpc::print_json(json, text_);
        }
    }

    void print_dimension(std::size_t dimension, std::int64_t offset) {
        if (dimension == shape_.size()) return print_element(offset);
        const std::int64_t size = shape_[dimension];
        const bool last = dimension + 1 == shape_.size();
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

    const tensor::ElementReader elements_;
    const tensor::Shape shape_, strides_;
    const tensor::ElementCodec* codec_;
    std::size_t item_, indent_;
    bool short_ = false;
    std::string text_;
};

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
                     ElementPrinter(*tensor, indent + kStep).print();
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
    std::string shape;
    for (const std::int64_t size : tensor->tensor().shape())
        shape.append(shape.empty() ? "" : ", ").append(std::to_string(size));
    return "tensor " + std::string(name_of(tensor->tensor().dtype())) + " [" + shape + "]";
}

std::string compact(const Json& json) {
    std::string text;
    json_rpc::print_json(json, text);
    return text;
}

std::string text_in(const Json& object, const char* member) {
    const auto found = object.find(member);
    if (found == object.end()) return {};
    return found->is_string() ? found->get<std::string>() : compact(*found);
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
