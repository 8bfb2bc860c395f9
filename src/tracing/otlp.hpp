#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/concurrency/clock.hpp"
#include "base/log/spans.hpp"

// The JSON form of OTLP, the OpenTelemetry Protocol, version 1 (https://opentelemetry.io/docs/specs/otlp).

namespace shared_tensor::tracing {

/// Where a traceparent, "00-TRACE-SPAN-FLAGS", has its two ids.
inline constexpr std::size_t kTraceAt = 3, kTraceSize = 32, kSpanAt = 36, kSpanSize = 16;

/// Prints a span that ended at `end`. Texts are cut after 4 KiB, and bytes that are no UTF-8 become U+FFFD. Throws
/// std::bad_alloc.
std::string otlp_span(const Span& span, SystemTime end);

/// Returns an ExportTraceServiceRequest with spans that otlp_span() printed. `service` is the attribute service.name of
/// all spans, printed as their texts are. Throws std::bad_alloc.
std::string otlp_request(std::span<const std::string> spans, std::string_view service);

/// Reads an ExportTraceServiceResponse: returns how many spans the collector rejected, and why. Zero if `json` is
/// something else.
struct PartialSuccess {
    std::uint64_t rejected = 0;
    std::string reason;
};
PartialSuccess read_otlp_response(std::string_view json);

}  // namespace shared_tensor::tracing
