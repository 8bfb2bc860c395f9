#include "cli/show.hpp"

#include <array>
#include <cstdio>
#include <vector>

#include "cli/tensor_text.hpp"
#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::cli {

namespace {

using codec::Json;

constexpr std::size_t kLine = 100;  // maximum length of a short value in characters
constexpr std::size_t kStep = 2;

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
