#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "runtime/models/model.hpp"

namespace shared_tensor::models {

namespace {

constexpr std::array<std::pair<State, std::string_view>, 4> kStates = {
    {{State::copied, "yes"}, {State::deep, "deep"}, {State::shared, "shared"}, {State::none, "no"}}};

State state_in(std::string_view word, const std::string& argument) {
    if (const auto state = parse_state(word)) return *state;
    throw std::invalid_argument("model \"" + argument + "\": stateful is yes, deep, shared or no");
}

bool parse_grad(std::string_view word, const std::string& argument) {
    if (word == "yes") return true;
    if (word == "no") return false;
    throw std::invalid_argument("model \"" + argument + "\": grad is yes or no");
}

/// Parses the text after the last '?' if all of it are options: a path may contain a '?' too.
void take_options(ModelArgument& result, const std::string& argument) {
    const std::size_t start = result.path.rfind('?');
    if (start == std::string::npos) return;
    LoadOptions options;
    for (std::string_view rest = std::string_view(result.path).substr(start + 1); !rest.empty();) {
        const std::string_view one = rest.substr(0, rest.find('&'));
        rest.remove_prefix(std::min(rest.size(), one.size() + 1));
        const std::size_t equals = one.find('=');
        const std::string_view name = one.substr(0, equals);
        if (equals == std::string_view::npos) return;
        const std::string_view value = one.substr(equals + 1);
        if (name == "stateful") {
            options.state = state_in(value, argument);
        } else if (name == "device") {
            options.device = value;
        } else if (name == "dtype") {
            options.dtype = value;
        } else if (name == "grad") {
            options.grad = parse_grad(value, argument);
        } else {
            return;
        }
    }
    result.options = std::move(options);
    result.path.resize(start);
}

}  // namespace

std::optional<State> parse_state(std::string_view word) {
    for (const auto& [state, known] : kStates) {
        if (known == word) return state;
    }
    return std::nullopt;
}

std::string_view word_of(State state) {
    for (const auto& [known, word] : kStates) {
        if (known == state) return word;
    }
    return {};
}

ModelArgument parse_model_argument(const std::string& argument) {
    ModelArgument result;
    const auto equals = argument.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == argument.size()) {
        throw std::invalid_argument("model \"" + argument + "\": write name=path, or name=path?stateful=deep");
    }
    result.name = argument.substr(0, equals);
    result.path = argument.substr(equals + 1);
    take_options(result, argument);
    return result;
}

}  // namespace shared_tensor::models
