#pragma once

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace bench {

/// Rows as they are measured: a table for people on standard output, JSON lines for programs in a file.
class Report {
public:
    explicit Report(const std::string& json_lines_path) {
        if (!json_lines_path.empty()) lines_.open(json_lines_path);
    }

    void group(const std::string& title) {
        group_ = title;
        std::printf("\n%s\n", title.c_str());
    }
    void row(const std::string& name, const std::vector<std::pair<std::string, double>>& figures) {
        std::printf("  %-44s", name.c_str());
        nlohmann::json line{{"group", group_}, {"name", name}};
        for (const auto& [figure, value] : figures) {
            std::printf("  %s %.*f", figure.c_str(), value < 100 ? 2 : 0, value);
            line[figure] = value;
        }
        std::printf("\n");
        std::fflush(stdout);
        if (lines_.is_open()) lines_ << line.dump() << std::endl;
    }

private:
    std::string group_;
    std::ofstream lines_;
};

}  // namespace bench
