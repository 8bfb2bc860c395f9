#include "report.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace bench {

namespace {

const char* word(Target::Bound bound) {
    switch (bound) {
        case Target::Bound::at_most: return "at most";
        case Target::Bound::below: return "below";
        case Target::Bound::at_least: return "at least";
        case Target::Bound::above: return "above";
    }
    return "";
}

}  // namespace

bool Target::reached() const {
    switch (bound) {
        case Bound::at_most: return value <= limit;
        case Bound::below: return value < limit;
        case Bound::at_least: return value >= limit;
        case Bound::above: return value > limit;
    }
    return false;
}

Report::Report(const std::string& json_lines_path, std::string where) : where_(std::move(where)) {
    if (json_lines_path.empty()) return;
    lines_.open(json_lines_path, std::ios::app);
    if (!lines_) throw std::runtime_error("cannot write " + json_lines_path);
}

void Report::group(const std::string& title) {
    group_ = title;
    std::printf("\n%s (%s)\n", title.c_str(), where_.c_str());
}

void Report::row(const std::string& name, const Figures& figures) {
    std::printf("  %-50s", name.c_str());
    nlohmann::json line{{"group", group_}, {"where", where_}, {"name", name}};
    for (const auto& [figure, value] : figures) {
        std::printf("  %s %9.*f", figure.c_str(), value < 1000 ? 1 : 0, value);
        line[figure] = value;
    }
    std::printf("\n");
    std::fflush(stdout);
    if (lines_.is_open()) lines_ << line.dump() << std::endl;
}

void Report::latency_row(const std::string& name, const Sample& latencies) {
    row(name, {{"p50_us", latencies.median()}, {"p99_us", latencies.quantile(0.99)}});
}

void Report::target(const Target& target) {
    const char* verdict = target.reached() ? "reached" : "missed";
    std::printf("  > %-60s %6.2f  %s %.2f: %s\n", target.text.c_str(), target.value, word(target.bound), target.limit,
                verdict);
    std::fflush(stdout);
    const nlohmann::json line{{"group", group_},
                              {"where", where_},
                              {"target", target.text},
                              {"value", target.value},
                              {"bound", word(target.bound)},
                              {"limit", target.limit},
                              {"verdict", verdict}};
    if (lines_.is_open()) lines_ << line.dump() << std::endl;
}

}  // namespace bench
