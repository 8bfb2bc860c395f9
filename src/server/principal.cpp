#include "server/principal.hpp"

#include <algorithm>
#include <array>

namespace shared_tensor::server {

namespace {

/// Methods that only concern calls of one's own, and what there is to call.
constexpr std::array<std::string_view, 6> kOfEverybody = {"task.", "lease.", "session.", "object.", "server.", "rpc."};

}  // namespace

bool Grant::allows(std::string_view method) const {
    if (methods_.empty()) return true;
    const auto is_own = [&](std::string_view prefix) { return method.starts_with(prefix); };
    if (std::any_of(kOfEverybody.begin(), kOfEverybody.end(), is_own)) return true;
    return std::any_of(methods_.begin(), methods_.end(), [&](const std::string& allowed) {
        if (!allowed.ends_with('*')) return method == allowed;
        return method.starts_with(std::string_view(allowed).substr(0, allowed.size() - 1));
    });
}

std::string reason_against(std::string_view method) {
    return "this token may not call " + std::string(method) + ": its line in the token file allows other methods";
}

}  // namespace shared_tensor::server
