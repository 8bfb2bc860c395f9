#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace shared_tensor {

/// "2026-01-02T03:04:05.678Z" (ISO 8601, UTC, milliseconds).
std::string iso8601(std::chrono::system_clock::time_point time);

/// Parses a duration: "500ms", "30s", "5m", "1h", or "0". A number without a unit is rejected, because some users would
/// mean seconds and others milliseconds. Throws std::invalid_argument that says what to write.
std::chrono::milliseconds parse_duration(std::string_view text);

}  // namespace shared_tensor
