#pragma once

#include <string>

#include "report.hpp"

namespace bench {

struct Settings {
    double seconds = 2;  ///< of each small measurement
    std::string folder;  ///< for Unix sockets
    std::string python;  ///< an interpreter that has torch, ray or pyarrow; empty: without these peers
    bool large = false;  ///< tensors of 1 GiB too
};

/// The groups of rows; each prints its targets behind them.
void small_calls(Report& report, const Settings& settings);
void throughput(Report& report, const Settings& settings);
void tensors(Report& report, const Settings& settings);
void streams(Report& report, const Settings& settings);
void nodes(Report& report, const Settings& settings);
void memory(Report& report, const Settings& settings);
void scaling(Report& report, const Settings& settings);

}  // namespace bench
