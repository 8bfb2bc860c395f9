#pragma once

#include <optional>
#include <string_view>

#include "models/model.hpp"

namespace shared_tensor::models {

/// "yes", "deep", "shared" or "no", as the option `stateful` has it; nothing for other words.
std::optional<State> parse_state(std::string_view word);
std::string_view word_of(State state);

}  // namespace shared_tensor::models
