#include "tracing/otlp.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include <shared_tensor/version.hpp>

#include "base/log/log_text.hpp"
#include "net/message/text.hpp"

namespace shared_tensor::tracing {

namespace {

/// A traceparent is "00-TRACE-SPAN-FLAGS".
constexpr std::size_t kMaxText = 4096;  // bytes of a text, with its escapes

/// The JSON is written here, because values of nlohmann_json take several times as long: 25 us for a span.
void append_text(std::string& json, std::string_view text) {
    json += '"';
    log::append_json_text(json, text, kMaxText);
    json += '"';
}

/// JSON has no infinite numbers.
void append_number(std::string& json, double number) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), std::isfinite(number) ? number : 0.0);
    json.append(digits.data(), end.ptr);
}

/// 64-bit integers are strings in the JSON form.
void append_time(std::string& json, const char* name, SystemTime time) {
    const auto nanoseconds = std::chrono::nanoseconds(time.time_since_epoch()).count();
    json.append(",\"").append(name).append("\":\"").append(std::to_string(nanoseconds)).append("\"");
}

void append_value(std::string& json, const decltype(log::Field::value)& value) {
    if (const auto* text = std::get_if<std::string_view>(&value)) {
        json += "\"stringValue\":";
        append_text(json, *text);
    } else if (const auto* number = std::get_if<std::int64_t>(&value)) {
        json.append("\"intValue\":\"").append(std::to_string(*number)).append("\"");
    } else {
        json += "\"doubleValue\":";
        append_number(json, std::get<double>(value));
    }
}

/// The name is one of ours: it needs no escapes.
void append_attribute(std::string& json, const log::Field& field) {
    if (json.back() != '[') json += ',';
    json.append("{\"key\":\"").append(field.name).append("\",\"value\":{");
    append_value(json, field.value);
    json += "}}";
}

}  // namespace

std::string otlp_span(const Span& span, SystemTime end) {
    const std::string_view trace = span.traceparent;
    std::string json;
    json.append("{\"traceId\":\"").append(trace.substr(kTraceAt, kTraceSize));
    json.append("\",\"spanId\":\"").append(trace.substr(kSpanAt, kSpanSize)).append("\"");
    if (!span.parent.empty()) json.append(",\"parentSpanId\":\"").append(span.parent).append("\"");
    json += ",\"name\":";
    append_text(json, span.name);
    json.append(",\"kind\":").append(std::to_string(static_cast<int>(span.kind)));
    append_time(json, "startTimeUnixNano", end - std::chrono::duration_cast<SystemTime::duration>(span.duration));
    append_time(json, "endTimeUnixNano", end);
    json += ",\"attributes\":[";
    for (const log::Field& field : span.attributes)
        append_attribute(json, field);
    if (!span.error.empty()) append_attribute(json, {"error.type", span.error});
    json += ']';
    if (!span.error.empty()) json += ",\"status\":{\"code\":2}";  // STATUS_CODE_ERROR
    return json + '}';
}

std::string otlp_request(std::span<const std::string> spans, std::string_view service) {
    std::string json = "{\"resourceSpans\":[{\"resource\":{\"attributes\":[";
    append_attribute(json, {"service.name", service});
    json += "]},\"scopeSpans\":[{\"scope\":{\"name\":\"shared_tensor\",\"version\":\"" SHARED_TENSOR_VERSION
            "\"},\"spans\":[";
    for (const std::string& span : spans)
        json.append(&span != spans.data() ? "," : "").append(span);
    return json + "]}]}]}";
}

PartialSuccess read_otlp_response(std::string_view json) {
    using Json = nlohmann::json;
    const Json response = Json::parse(json, nullptr, false);
    if (!response.is_object() || !response.contains("partialSuccess")) return {};
    const Json& partial = response["partialSuccess"];
    PartialSuccess read;
    if (const auto rejected = partial.find("rejectedSpans"); rejected != partial.end()) {
        const bool is_text = rejected->is_string();
        if (is_text) read.rejected = net::parse_decimal(rejected->get_ref<const std::string&>()).value_or(0);
        if (rejected->is_number_unsigned()) read.rejected = rejected->get<std::uint64_t>();
    }
    if (const auto reason = partial.find("errorMessage"); reason != partial.end() && reason->is_string())
        read.reason = reason->get<std::string>();
    return read;
}

}  // namespace shared_tensor::tracing
