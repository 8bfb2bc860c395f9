#pragma once

#include <chrono>
#include <string>

namespace shared_tensor {

/// "2026-01-02T03:04:05.678Z" (ISO 8601, UTC, milliseconds).
std::string iso8601(std::chrono::system_clock::time_point time);

}  // namespace shared_tensor
