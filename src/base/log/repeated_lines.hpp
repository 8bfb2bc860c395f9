#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
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
    bool is_new(int level, std::string_view text, SteadyTime now);
    /// The counts whose window has ended, or whose text makes room for a newer one. Each count is returned once.
    std::vector<Count> due(SteadyTime now);
    /// All counts, due or not. Afterwards every line is new.
    std::vector<Count> all();

private:
    struct Known {
        Count count;
        SteadyTime since;
    };
    std::vector<Known> known_;  // ordered by the start of their windows
};

}  // namespace shared_tensor::log
