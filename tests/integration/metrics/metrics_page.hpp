#pragma once

#include <map>
#include <sstream>
#include <string>

#include "integration/server/shared_daemon.hpp"

namespace shared_tensor::test {

/// The samples of a page of metrics, by their series as they are written: `name{label="value"}`.
class MetricsPage {
public:
    explicit MetricsPage(const std::string& text) {
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
            if (line.empty() || line.front() == '#') continue;
            const std::size_t space = line.rfind(' ');
            if (!samples_.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second)
                throw std::runtime_error("twice on the page: " + line);
        }
    }
    bool has(const std::string& series) const { return samples_.contains("shared_tensor_" + series); }
    /// The value of a series without the prefix shared_tensor_; -1 if it is not on the page.
    double operator[](const std::string& series) const {
        const auto found = samples_.find("shared_tensor_" + series);
        return found == samples_.end() ? -1 : found->second;
    }
    double calls(const std::string& function, const std::string& outcome) const {
        return (*this)["calls_total{function=\"" + function + "\",outcome=\"" + outcome + "\"}"];
    }
    const std::map<std::string, double>& samples() const { return samples_; }

private:
    std::map<std::string, double> samples_;
};

inline MetricsPage metrics_of(int port, const HeaderList& headers = {}) {
    const HttpReply reply = http_request(port, "GET", "/metrics", {}, headers);
    if (reply.status != 200) throw std::runtime_error("/metrics: " + reply.head + reply.body);
    return MetricsPage(reply.body);
}

}  // namespace shared_tensor::test
