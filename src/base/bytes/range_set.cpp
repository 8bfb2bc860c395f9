#include "base/bytes/range_set.hpp"

#include <algorithm>
#include <iterator>

namespace shared_tensor {

void RangeSet::insert(const NumberRange& range) {
    if (range.first >= range.end) return;
    auto [first, end] = range;
    auto at = ends_.upper_bound(first);
    if (at != ends_.begin() && std::prev(at)->second >= first) --at;
    while (at != ends_.end() && at->first <= end) {  // overlaps or is adjacent
        first = std::min(first, at->first);
        end = std::max(end, at->second);
        count_ -= at->second - at->first;
        at = ends_.erase(at);
    }
    ends_.emplace_hint(at, first, end);
    count_ += end - first;
}

bool RangeSet::touches(const NumberRange& range) const {
    const auto after = ends_.upper_bound(range.end);
    return after != ends_.begin() && std::prev(after)->second >= range.first;
}

std::vector<NumberRange> RangeSet::missing(const NumberRange& within, std::size_t most) const {
    std::vector<NumberRange> gaps;
    std::uint64_t next = within.first;
    auto at = ends_.upper_bound(next);
    if (at != ends_.begin()) next = std::max(next, std::prev(at)->second);
    for (; next < within.end && gaps.size() < most; ++at) {
        const std::uint64_t end = at != ends_.end() ? std::min(at->first, within.end) : within.end;
        if (next < end) gaps.push_back({next, end});
        if (at == ends_.end()) break;
        next = at->second;
    }
    return gaps;
}

}  // namespace shared_tensor
