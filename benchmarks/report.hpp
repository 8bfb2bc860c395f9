#pragma once

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "measure.hpp"

namespace bench {

using Figures = std::vector<std::pair<std::string, double>>;

/// What a ratio of two rows should be.
struct Target {
    std::string text;  ///< "inline / bare httplib"
    double value = 0;
    enum class Bound { at_most, below, at_least, above } bound = Bound::at_most;
    double limit = 0;

    bool reached() const;
};

/// Rows as they are measured: a table for people on standard output, JSON lines for programs in a file.
class Report {
public:
    /// Appends to the file; no file without a path. `where` goes into every line.
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
