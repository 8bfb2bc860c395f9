#include <stdexcept>

#include "models/model.hpp"

namespace shared_tensor::models {

namespace {

State parse_state(std::string_view word, const std::string& argument) {
    if (word == "yes") return State::copied;
    if (word == "deep") return State::deep;
    if (word == "shared") return State::shared;
    if (word == "no") return State::none;
    throw std::invalid_argument("model \"" + argument + "\": stateful is yes, deep, shared or no");
}

}  // namespace

ModelArgument parse_model_argument(const std::string& argument) {
    ModelArgument result;
    const auto equals = argument.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == argument.size()) {
        throw std::invalid_argument("model \"" + argument + "\": write name=path, or name=path?stateful=deep");
    }
    result.name = argument.substr(0, equals);
    result.path = argument.substr(equals + 1);
    static constexpr std::string_view kOption = "?stateful=";
    if (const auto found = result.path.rfind(kOption); found != std::string::npos) {
        result.options.state = parse_state(std::string_view(result.path).substr(found + kOption.size()), argument);
        result.path.resize(found);
    }
    return result;
}

}  // namespace shared_tensor::models
