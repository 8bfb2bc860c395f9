#include "server/metrics/page.hpp"

#include <prometheus/text_serializer.h>

#include <utility>

#include "base/bytes/utf8.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::size_t kMostLabelBytes = 200;               // as long as a function's name, so that no two are the same
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::string label_value(std::string_view text) {
    std::string value;
    while (!text.empty()) {
        const auto [size, valid] = utf8_prefix(text);
        const auto first = static_cast<unsigned char>(text.front());
        const bool fits = valid && first >= 0x20 && first != 0x7F;
        const std::string_view character = fits ? text.substr(0, size) : kReplacement;
        if (value.size() + character.size() > kMostLabelBytes) break;
        value += character;
        text.remove_prefix(size);
    }
    return value;
}

void MetricsPage::begin(std::string name, std::string help, prometheus::MetricType type) {
    families_.push_back({"shared_tensor_" + std::move(name), std::move(help), type, {}});
}

void MetricsPage::counter(std::string name, std::string help) {
    begin(std::move(name), std::move(help), prometheus::MetricType::Counter);
}
void MetricsPage::gauge(std::string name, std::string help) {
    begin(std::move(name), std::move(help), prometheus::MetricType::Gauge);
}
void MetricsPage::histogram(std::string name, std::string help) {
    begin(std::move(name), std::move(help), prometheus::MetricType::Histogram);
}

void MetricsPage::add(double value, Labels labels) {
    prometheus::MetricFamily& family = families_.back();
    prometheus::ClientMetric& sample = family.metric.emplace_back();
    sample.label = std::move(labels);
    (family.type == prometheus::MetricType::Counter ? sample.counter.value : sample.gauge.value) = value;
}

void MetricsPage::add(const runtime::DurationBuckets::Counts& durations, Labels labels) {
    prometheus::ClientMetric& sample = families_.back().metric.emplace_back();
    sample.label = std::move(labels);
    std::uint64_t count = 0;
    for (std::size_t bucket = 0; bucket < durations.counts.size(); ++bucket) {
        count += durations.counts[bucket];
        if (bucket < runtime::DurationBuckets::kLimits)
            sample.histogram.bucket.push_back({count, runtime::DurationBuckets::Counts::limit_of(bucket)});
    }
    sample.histogram.sample_count = count;
    sample.histogram.sample_sum = static_cast<double>(durations.sum_ns) / 1e9;
}

std::string MetricsPage::text() const { return prometheus::TextSerializer().Serialize(families_); }

}  // namespace shared_tensor::server
