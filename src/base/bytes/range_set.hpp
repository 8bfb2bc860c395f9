#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <vector>

namespace shared_tensor {

/// Numbers from `first` up to, but not including, `end`.
struct NumberRange {
    std::uint64_t first = 0, end = 0;
    bool operator==(const NumberRange&) const = default;
};

/// A set of numbers, kept as the fewest ranges. Not thread-safe.
class RangeSet {
public:
    /// Numbers that are already in the set stay.
    void insert(const NumberRange& range) {
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
    /// The parts of `within` that are not in the set, in order; at most `most` of them.
    std::vector<NumberRange> missing(const NumberRange& within,
                                     std::size_t most = std::numeric_limits<std::size_t>::max()) const {
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
    /// Whether the range overlaps or is adjacent to a range of the set. If so, insert() adds no further range.
    bool touches(const NumberRange& range) const {
        const auto after = ends_.upper_bound(range.end);
        return after != ends_.begin() && std::prev(after)->second >= range.first;
    }
    std::uint64_t count() const { return count_; }  ///< how many numbers are in the set
    std::size_t ranges() const { return ends_.size(); }

private:
    std::map<std::uint64_t, std::uint64_t> ends_;  // first number to end; ranges neither overlap nor touch
    std::uint64_t count_ = 0;
};

}  // namespace shared_tensor
