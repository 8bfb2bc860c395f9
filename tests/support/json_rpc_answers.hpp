#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace shared_tensor::test {

/// Removes an error's `data` from the actual response if the expected response has none: any `data` is allowed then.
inline nlohmann::json without_extra_data(const nlohmann::json& expected, nlohmann::json actual) {
    const bool both_errors = expected.is_object() && actual.is_object() && expected.contains("error") &&
                             actual.contains("error") && actual["error"].is_object();
    if (both_errors && !expected["error"].contains("data")) actual["error"].erase("data");
    return actual;
}

/// Whether two answers are equal for JSON-RPC. The responses of a batch may be in any order. An error may have `data`
/// that is not expected. An empty text equals only an empty text. Ids and results must have equal values and number
/// types.
inline bool same_answer(std::string_view expected_text, std::string_view actual_text) {
    if (expected_text.empty() || actual_text.empty()) return expected_text.empty() && actual_text.empty();
    const auto expected = nlohmann::json::parse(expected_text);
    const auto actual = nlohmann::json::parse(actual_text, nullptr, false);
    if (!expected.is_array()) return expected.dump() == without_extra_data(expected, actual).dump();
    if (!actual.is_array() || actual.size() != expected.size()) return false;

    std::vector<nlohmann::json> left(actual.begin(), actual.end());
    return std::all_of(expected.begin(), expected.end(), [&left](const nlohmann::json& wanted) {
        const auto found = std::find_if(left.begin(), left.end(), [&wanted](const nlohmann::json& item) {
            return wanted.dump() == without_extra_data(wanted, item).dump();
        });
        if (found == left.end()) return false;
        left.erase(found);
        return true;
    });
}

}  // namespace shared_tensor::test
