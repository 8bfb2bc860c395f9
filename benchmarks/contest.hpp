#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "measure.hpp"

namespace bench {

/// Who is measured beside others in one group.
struct Contestant {
    std::string name;
    std::function<Sample(double seconds)> measure;
};

/// Measures each for `seconds` in all, by turns in short slices: what else the machine does hits all of them alike.
std::map<std::string, Sample> by_turns(const std::vector<Contestant>& contestants, double seconds);

/// One call whose answer is checked; throws when it is not what it should be.
using Caller = std::function<void()>;

/// Calls per second of one thread per caller, each calling without a pause. The callers are made, and call once, before
/// the time starts.
double calls_per_second(int threads, double seconds, const std::function<Caller(int number)>& make_caller);

}  // namespace bench
