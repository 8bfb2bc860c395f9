#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace shared_tensor {

/// Returns how many characters must be inserted, removed or replaced to make `b` from `a`.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);  // the distances of a's first characters to each beginning of b
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j + 1] + 1, row[j] + 1});
        }
    }
    return row.back();
}

/// Returns the name that was probably meant by `word`, which is none of the names: the first name that contains it,
/// else the name with the smallest edit distance. Empty if more than half of the word's characters differ.
inline std::string_view nearest_name(std::string_view word, std::span<const std::string_view> names) {
    std::string_view nearest;
    std::size_t smallest = std::max<std::size_t>(1, word.size() / 2) + 1;
    for (const std::string_view name : names) {
        if (word.size() > 2 && name.find(word) != std::string_view::npos) return name;
        const std::size_t distance = edit_distance(word, name);
        if (distance < smallest) nearest = name;
        smallest = std::min(smallest, distance);
    }
    return nearest;
}

}  // namespace shared_tensor
