#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/concurrency/clock.hpp"

namespace shared_tensor::log {

/// Writes equal log lines once per kWindow and counts the others.
/// Not thread-safe.
class RepeatedLines {
public:
    static constexpr std::chrono::seconds kWindow{10};
    static constexpr std::size_t kMaxTexts = 32;  ///< known at once; the oldest text is forgotten first

    struct Count {
        int level;
        std::string text;
        std::size_t left_out;  ///< at least 1
    };

    /// True if the line is to be written; false if it was only counted.
    bool is_new(int level, std::string_view text, SteadyTime now) {
        const auto same = [&](const Known& known) { return known.count.level == level && known.count.text == text; };
        const auto found = std::find_if(known_.begin(), known_.end(), same);
        if (found == known_.end()) {
            known_.push_back({{level, std::string(text), 0}, now});
            return true;
        }
        ++found->count.left_out;
        return false;
    }
    /// The counts whose window has ended, or whose text makes room for a newer one. Each count is returned once.
    std::vector<Count> due(SteadyTime now) {
        std::vector<Count> counts;
        const auto is_over = [&] {
            return !known_.empty() && (now - known_.front().since >= kWindow || known_.size() >= kMaxTexts);
        };
        while (is_over()) {
            if (known_.front().count.left_out > 0) counts.push_back(std::move(known_.front().count));
            known_.erase(known_.begin());
        }
        return counts;
    }
    /// All counts, due or not. Afterwards every line is new.
    std::vector<Count> all() { return due(SteadyTime::max()); }

private:
    struct Known {
        Count count;
        SteadyTime since;
    };
    std::vector<Known> known_;  // ordered by the start of their windows
};

}  // namespace shared_tensor::log
