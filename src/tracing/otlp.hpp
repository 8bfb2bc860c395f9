#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/concurrency/clock.hpp"
#include "base/log/spans.hpp"

// The JSON form of OTLP, the OpenTelemetry Protocol, version 1 (https://opentelemetry.io/docs/specs/otlp).

namespace shared_tensor::tracing {

/// A Span that owns its texts.
struct KeptSpan {
    using Value = std::variant<std::string, std::int64_t, double>;
    Span::Kind kind;
    std::string name, traceparent, parent, error;
    SystemTime end;
    std::chrono::nanoseconds duration;
    std::vector<std::pair<std::string, Value>> attributes;
};
/// Throws std::bad_alloc.
KeptSpan keep(const Span& span, SystemTime end);

/// Returns an ExportTraceServiceRequest. `service` is the attribute service.name of all spans. Texts are cut after
/// 4 KiB, and bytes that are no UTF-8 become U+FFFD. Throws std::bad_alloc.
std::string otlp_request(std::span<const KeptSpan> spans, std::string_view service);

/// Reads an ExportTraceServiceResponse: returns how many spans the collector rejected, and why. Zero if `json` is
/// something else.
struct PartialSuccess {
    std::uint64_t rejected = 0;
    std::string reason;
};
PartialSuccess read_otlp_response(std::string_view json);

}  // namespace shared_tensor::tracing
