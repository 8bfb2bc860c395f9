#pragma once

#include <optional>
#include <string_view>

#include "runtime/models/model.hpp"

namespace shared_tensor::models {

/// Parses "yes", "deep", "shared" or "no", the values of the option `stateful`; nullopt for other words.
std::optional<State> parse_state(std::string_view word);
std::string_view word_of(State state);

}  // namespace shared_tensor::models
