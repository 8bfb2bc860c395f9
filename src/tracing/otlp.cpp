#include "tracing/otlp.hpp"

#include <nlohmann/json.hpp>

#include <shared_tensor/version.hpp>

#include "net/message/text.hpp"

namespace shared_tensor::tracing {

namespace {

using Json = nlohmann::ordered_json;

/// A traceparent is "00-TRACE-SPAN-FLAGS".
constexpr std::size_t kTraceAt = 3, kTraceSize = 32, kSpanAt = 36, kSpanSize = 16;

/// 64-bit integers are strings in the JSON form.
std::string nanoseconds_text(SystemTime time) {
    return std::to_string(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

Json value_json(const KeptSpan::Value& value) {
    if (const auto* text = std::get_if<std::string>(&value)) return {{"stringValue", *text}};
    if (const auto* number = std::get_if<std::int64_t>(&value)) return {{"intValue", std::to_string(*number)}};
    return {{"doubleValue", std::get<double>(value)}};
}

Json attribute_json(std::string_view name, const KeptSpan::Value& value) {
    return {{"key", name}, {"value", value_json(value)}};
}

Json span_json(const KeptSpan& span) {
    Json json{{"traceId", span.traceparent.substr(kTraceAt, kTraceSize)},
              {"spanId", span.traceparent.substr(kSpanAt, kSpanSize)}};
    if (!span.parent.empty()) json["parentSpanId"] = span.parent;
    json["name"] = span.name;
    json["kind"] = static_cast<int>(span.kind);
    const auto start = span.end - std::chrono::duration_cast<SystemTime::duration>(span.duration);
    json["startTimeUnixNano"] = nanoseconds_text(start);
    json["endTimeUnixNano"] = nanoseconds_text(span.end);
    Json& attributes = json["attributes"] = Json::array();
    for (const auto& [name, value] : span.attributes)
        attributes.push_back(attribute_json(name, value));
    if (span.error.empty()) return json;
    attributes.push_back(attribute_json("error.type", span.error));
    json["status"] = {{"code", 2}};  // STATUS_CODE_ERROR
    return json;
}

}  // namespace

KeptSpan keep(const Span& span, SystemTime end) {
    KeptSpan kept{span.kind,
                  std::string(span.name),
                  std::string(span.traceparent),
                  std::string(span.parent),
                  std::string(span.error),
                  end,
                  span.duration,
                  {}};
    kept.attributes.reserve(span.attributes.size());
    for (const log::Field& field : span.attributes) {
        const auto own = [](const auto& value) -> KeptSpan::Value {
            if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string_view>)
                return std::string(value);
            else
                return value;
        };
        kept.attributes.emplace_back(field.name, std::visit(own, field.value));
    }
    return kept;
}

std::string otlp_request(std::span<const KeptSpan> spans, std::string_view service) {
    Json list = Json::array();
    for (const KeptSpan& span : spans)
        list.push_back(span_json(span));
    const Json scope{{"name", "shared_tensor"}, {"version", SHARED_TENSOR_VERSION}};
    const Json resource{{"attributes", {attribute_json("service.name", std::string(service))}}};
    const Json of_scope{{"scope", scope}, {"spans", std::move(list)}};
    const Json request{
        {"resourceSpans", Json::array({{{"resource", resource}, {"scopeSpans", Json::array({of_scope})}}})}};
    return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

PartialSuccess read_otlp_response(std::string_view json) {
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
