#include "http/message.hpp"

#include <algorithm>

#include "http/text.hpp"

namespace shared_tensor::http {

std::optional<std::string_view> Headers::find(std::string_view name) const {
    for (const auto& [key, value] : fields_) {
        if (same_token(key, name)) return value;
    }
    return std::nullopt;
}

std::size_t Headers::count(std::string_view name) const {
    return static_cast<std::size_t>(std::count_if(fields_.begin(), fields_.end(),
                                                  [&](const auto& field) { return same_token(field.first, name); }));
}

std::string_view Request::text() const {
    if (!body) return {};
    return {reinterpret_cast<const char*>(body->data()), body->size()};
}

}  // namespace shared_tensor::http
