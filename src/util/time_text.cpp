#include "util/time_text.hpp"

#include <cstdio>
#include <ctime>

namespace shared_tensor {

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

}  // namespace shared_tensor
