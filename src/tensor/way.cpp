#include "tensor/way.hpp"

#include <algorithm>

namespace shared_tensor::tensor {

namespace {

constexpr std::array<std::string_view, kWays.size()> kNames{"data", "base64", "body", "shm", "cuda_ipc", "url"};

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

template <class T>
void add_once(std::vector<T>& list, T item) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(std::move(item));
}

}  // namespace

std::string_view name_of(Way way) { return kNames[static_cast<std::size_t>(way)]; }

std::optional<Way> parse_way(std::string_view name) {
    const auto found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end()) return std::nullopt;
    return kWays[static_cast<std::size_t>(found - kNames.begin())];
}

Wishes parse_ways(std::string_view list) {
    Wishes wishes;
    while (!list.empty()) {
        const auto comma = std::min(list.find(','), list.size());
        const auto word = trimmed(list.substr(0, comma));
        list.remove_prefix(std::min(comma + 1, list.size()));
        if (word.empty()) continue;
        if (const auto way = parse_way(word)) {
            add_once(wishes.ways, *way);
        } else {
            add_once(wishes.unknown, std::string(word));
        }
    }
    return wishes;
}

std::string join(const std::vector<Way>& ways) {
    std::string text;
    for (const Way way : ways)
        text.append(text.empty() ? "" : ", ").append(name_of(way));
    return text;
}

}  // namespace shared_tensor::tensor
