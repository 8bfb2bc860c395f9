#pragma once

#include <algorithm>
#include <string_view>

// Lists in header fields and options: elements with commas between them (RFC 9110, section 5.6.1).

namespace shared_tensor {

/// Removes spaces and tabs at both ends.
inline std::string_view trim(std::string_view text) {
    constexpr std::string_view kBlanks = " \t";
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

/// Calls `use` with each element between separators that is not empty, trimmed.
template <class Use>
void for_each_in(std::string_view list, Use use, char separator = ',') {
    while (!list.empty()) {
        const std::size_t end = std::min(list.find(separator), list.size());
        if (const auto one = trim(list.substr(0, end)); !one.empty()) use(one);
        list.remove_prefix(std::min(end + 1, list.size()));
    }
}

/// Returns "text/html" for "text/html; charset=utf-8".
inline std::string_view without_parameters(std::string_view element) {
    return trim(element.substr(0, element.find(';')));
}

/// Whether the weight of an element is 0: "zstd;q=0" (RFC 9110, section 12.4.2).
inline bool is_rejected(std::string_view element) {
    for (std::size_t at = element.find(';'); at != std::string_view::npos; at = element.find(';', at + 1)) {
        const std::string_view parameter = trim(element.substr(at + 1, element.find(';', at + 1) - at - 1));
        if (parameter.starts_with("q=") || parameter.starts_with("Q="))
            return parameter.find_first_of("123456789") == std::string_view::npos;
    }
    return false;
}

}  // namespace shared_tensor
