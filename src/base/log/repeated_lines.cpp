#include "base/log/repeated_lines.hpp"

#include <algorithm>
#include <utility>

namespace shared_tensor::log {

bool RepeatedLines::is_new(int level, std::string_view text, SteadyTime now) {
    const auto same = [&](const Known& known) { return known.count.level == level && known.count.text == text; };
    const auto found = std::find_if(known_.begin(), known_.end(), same);
    if (found == known_.end()) {
        known_.push_back({{level, std::string(text), 0}, now});
        return true;
    }
    ++found->count.left_out;
    return false;
}

std::vector<RepeatedLines::Count> RepeatedLines::due(SteadyTime now) {
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

std::vector<RepeatedLines::Count> RepeatedLines::all() { return due(SteadyTime::max()); }

}  // namespace shared_tensor::log
