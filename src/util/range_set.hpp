#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

namespace shared_tensor {

/// Numbers from `first` up to `end`, which is not one of them.
struct NumberRange {
    std::uint64_t first = 0, end = 0;
    bool operator==(const NumberRange&) const = default;
};

/// A set of numbers that come in ranges, kept as the fewest ranges. Not thread safe by itself.
class RangeSet {
public:
    /// What is there already stays.
    void insert(const NumberRange& range);
    /// The parts of `within` that are not there, in order; `most` of them.
    std::vector<NumberRange> missing(const NumberRange& within,
                                     std::size_t most = std::numeric_limits<std::size_t>::max()) const;
    /// Whether some of it is there, or its neighbours are: then to insert it makes no further range.
    bool touches(const NumberRange& range) const;
    std::uint64_t count() const { return count_; }  ///< of the numbers
    std::size_t ranges() const { return ends_.size(); }

private:
    std::map<std::uint64_t, std::uint64_t> ends_;  // by first; no two touch
    std::uint64_t count_ = 0;
};

}  // namespace shared_tensor
