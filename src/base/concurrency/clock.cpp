#include "base/concurrency/clock.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <stdexcept>
#include <utility>

namespace shared_tensor {

namespace {

constexpr std::array<std::pair<std::string_view, std::int64_t>, 4> kUnits = {
    {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}}};
constexpr std::int64_t kMost = 100 * 365 * 24, kMostMs = kMost * 3'600'000;  // 100 years, in hours

}  // namespace

std::string iso8601(std::chrono::system_clock::time_point time) {
    using std::chrono::floor;
    using std::chrono::milliseconds;
    const auto since_epoch = floor<milliseconds>(time).time_since_epoch();
    const std::time_t seconds = floor<std::chrono::seconds>(since_epoch).count();
    const int millis = static_cast<int>((since_epoch % std::chrono::seconds(1)).count());
    std::tm utc{};
    ::gmtime_r(&seconds, &utc);
    char date[32];
    const std::size_t size = std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
    char fraction[16];
    (void)std::snprintf(fraction, sizeof fraction, ".%03dZ", millis < 0 ? millis + 1000 : millis);
    return std::string(date, size) + fraction;
}

std::chrono::milliseconds parse_duration(std::string_view text) {
    const auto reject = [&](const std::string& hint) {
        throw std::invalid_argument("must be a time such as 500ms, 30s, 5m or 1h, not \"" + std::string(text) + '"' +
                                    hint);
    };
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
    if (error != std::errc() || text.starts_with('-')) reject("");
    if (unit.empty() && number != 0) {
        const std::string digits(text);
        reject(": write " + digits + "s for seconds, " + digits + "ms for milliseconds");
    }
    if (unit.empty()) return {};
    const auto known = std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& one) { return one.first == unit; });
    if (known == kUnits.end()) reject("");
    if (number > kMostMs / known->second) reject(": at most " + std::to_string(kMost) + "h");
    return std::chrono::milliseconds(number * known->second);
}

}  // namespace shared_tensor
