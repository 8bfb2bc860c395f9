#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "util/clock.hpp"

namespace shared_tensor::log {

/// Equal log lines are written once in kWindow; the others are counted.
/// Thread safety: none.
class RepeatedLines {
public:
    static constexpr std::chrono::seconds kWindow{10};
    static constexpr std::size_t kMaxTexts = 32;  ///< known at once; the oldest one is forgotten first

    struct Count {
        int level;
        std::string text;
        std::size_t left_out;  ///< at least 1
    };

    /// True if the line is to be written; false if it was counted instead.
    bool is_new(int level, std::string_view text, SteadyTime now);
    /// The counts that are due: their window has ended, or their text makes room for a newer one. Each comes once.
    std::vector<Count> due(SteadyTime now);
    /// All counts, due or not. Afterwards every line is new.
    std::vector<Count> all();

private:
    struct Known {
        Count count;
        SteadyTime since;
    };
    std::vector<Known> known_;  // in the order in which their windows began
};

}  // namespace shared_tensor::log
