#pragma once

#include <string>

#include "report.hpp"

namespace bench {

struct Settings {
    double seconds = 2;  ///< duration of each small measurement
    std::string folder;  ///< for Unix sockets
    std::string python;  ///< interpreter with torch, ray or pyarrow; empty: without these peers
    bool large = false;  ///< also measure tensors of 1 GiB
};

/// The groups of rows. Each prints its rows, then its targets.
void small_calls(Report& report, const Settings& settings);
void throughput(Report& report, const Settings& settings);
void tensors(Report& report, const Settings& settings);
void streams(Report& report, const Settings& settings);
void nodes(Report& report, const Settings& settings);
void memory(Report& report, const Settings& settings);
void publish(Report& report, const Settings& settings);
void metrics(Report& report, const Settings& settings);
void scaling(Report& report, const Settings& settings);
void overload(Report& report, const Settings& settings);

}  // namespace bench
