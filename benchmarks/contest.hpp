#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "measure.hpp"

namespace bench {

/// An entry of a group: it is measured side by side with the others.
struct Contestant {
    std::string name;
    std::function<Sample(double seconds)> measure;
};

/// Measures each contestant for `seconds` in total, in short slices that take turns: so other load on the machine
/// affects all of them alike.
std::map<std::string, Sample> by_turns(const std::vector<Contestant>& contestants, double seconds);

/// Makes one call and checks its result; throws if the result is wrong.
using Caller = std::function<void()>;

/// Calls per second with one thread per caller; each thread calls without a pause. The callers are made, and make one
/// call, before the measurement starts.
double calls_per_second(int threads, double seconds, const std::function<Caller(int number)>& make_caller);

}  // namespace bench
