#pragma once

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "measure.hpp"

namespace bench {

using Figures = std::vector<std::pair<std::string, double>>;

/// A bound for the ratio of two rows.
struct Target {
    std::string text;  ///< "inline / bare httplib"
    double value = 0;
    enum class Bound { at_most, below, at_least, above } bound = Bound::at_most;
    double limit = 0;

    bool reached() const;
};

/// Writes rows as they are measured: a table for people to standard output, and JSON lines for programs to a file.
class Report {
public:
    /// Appends to the file; without a path, writes no file. `where` is written into each line.
    Report(const std::string& json_lines_path, std::string where);

    void group(const std::string& title);
    void row(const std::string& name, const Figures& figures);
    void latency_row(const std::string& name, const Sample& latencies);
    void target(const Target& target);

private:
    std::string where_, group_;
    std::ofstream lines_;
};

}  // namespace bench
