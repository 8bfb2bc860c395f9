#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <string_view>
#include <vector>

#include "runtime/functions/call_stats.hpp"

namespace shared_tensor::server {

/// A page of metrics in the text format 0.0.4 of Prometheus. Not thread-safe.
class MetricsPage {
public:
    using Label = prometheus::ClientMetric::Label;
    using Labels = std::vector<Label>;

    /// Begins a metric: the samples that are added next belong to it.
    void counter(std::string name, std::string help);
    void gauge(std::string name, std::string help);
    void histogram(std::string name, std::string help);

    /// Adds a sample of the counter or gauge. No two samples of a metric may have the same labels.
    void add(double value, Labels labels = {});
    void add(const runtime::DurationBuckets::Counts& durations, Labels labels);

    std::string text() const;

private:
    void begin(std::string name, std::string help, prometheus::MetricType type);

    std::vector<prometheus::MetricFamily> families_;
};

/// Makes any bytes fit for the value of a label: at most 128 bytes of valid UTF-8 without control characters.
/// Prometheus rejects a whole page for one invalid byte.
std::string label_value(std::string_view text);

/// The value of a label for all things beyond the limit of its values.
inline constexpr const char* kOthers = "(other)";

}  // namespace shared_tensor::server
