#pragma once

#include <cstddef>
#include <cstdint>
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
    void insert(const NumberRange& range);
    /// The parts of `within` that are not in the set, in order; at most `most` of them.
    std::vector<NumberRange> missing(const NumberRange& within,
                                     std::size_t most = std::numeric_limits<std::size_t>::max()) const;
    /// Whether the range overlaps or is adjacent to a range of the set. If so, insert() adds no further range.
    bool touches(const NumberRange& range) const;
    std::uint64_t count() const { return count_; }  ///< how many numbers are in the set
    std::size_t ranges() const { return ends_.size(); }

private:
    std::map<std::uint64_t, std::uint64_t> ends_;  // first number to end; ranges neither overlap nor touch
    std::uint64_t count_ = 0;
};

}  // namespace shared_tensor
