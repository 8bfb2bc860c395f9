#include "streams/stream_message.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::streams {

namespace {

using Kind = StreamMessage::Kind;

/// In the order of Kind.
constexpr std::array<std::string_view, 6> kMethods{"stream.ready", "stream.item", "stream.end",
                                                   "stream.taken", "stream.stop", "stream.cancel"};

std::optional<Kind> kind_of(std::string_view method) {
    const auto found = std::find(kMethods.begin(), kMethods.end(), method);
    if (found == kMethods.end()) return std::nullopt;
    return static_cast<Kind>(found - kMethods.begin());
}

std::string start(Kind kind, const Json& call) {
    std::string text;
    text.reserve(128);
    text.append(R"({"jsonrpc":"2.0","method":")").append(kMethods.at(static_cast<std::size_t>(kind)));
    json_rpc::print_json(call, text.append(R"(","params":{"call":)"));
    return text;
}

std::string start(Kind kind, const Json& call, std::string_view stream) {
    std::string text = start(kind, call);
    json_rpc::print_json_string(stream, text.append(R"(,"stream":)"));
    return text;
}

bool read_count(const Json& params, const char* name, std::uint64_t& count) {
    const auto found = params.find(name);
    if (found == params.end()) return true;
    if (!found->is_number_unsigned()) return false;
    count = found->get<std::uint64_t>();
    return true;
}

bool read_streams(const Json& params, std::vector<StreamInfo>& streams) {
    const auto list = params.find("streams");
    if (list == params.end() || !list->is_array()) return false;
    for (const Json& one : *list) {
        if (!one.is_object()) return false;
        const Json name = one.value("name", Json());
        const Json flow = one.value("flow", Json());
        if (!name.is_string() || (flow != "in" && flow != "out")) return false;
        streams.push_back({name.get<std::string>(), flow == "in"});
    }
    return true;
}

bool read_window(const Json& params, Window& window) {
    const auto found = params.find("window");
    if (found == params.end()) return true;
    std::uint64_t items = window.items, bytes = window.bytes;
    if (!found->is_object() || !read_count(*found, "items", items) || !read_count(*found, "bytes", bytes)) return false;
    window = {static_cast<std::size_t>(items), static_cast<std::size_t>(bytes)};
    return items > 0 && bytes > 0;
}

/// Returns the first fault of the parameters; empty if there is none.
std::string_view read_params(Json& params, StreamMessage& message) {
    if (!params.is_object()) return "params must be an object";
    const auto call = params.find("call");
    if (call == params.end() || !json_rpc::is_valid_id(*call) || call->is_null())
        return R"("call" must be the id of a call)";
    message.call = std::move(*call);
    if (message.kind == Kind::cancel) return {};
    if (message.kind == Kind::ready) {
        if (!read_streams(params, message.streams))
            return R"("streams" must be a list of {"name", "flow": "in" or "out"})";
        return read_window(params, message.window) ? std::string_view() : R"("window" must hold positive counts)";
    }
    const auto stream = params.find("stream");
    if (stream == params.end() || !stream->is_string()) return R"("stream" must be the name of a stream)";
    message.stream = stream->get<std::string>();
    if (message.kind == Kind::taken) {
        if (!params.contains("items") || !read_count(params, "items", message.taken))
            return R"("items" must be a count)";
    }
    if (message.kind != Kind::item) return {};
    const auto value = params.find("value");
    if (value == params.end()) return R"("value" is missing)";
    constexpr std::uint64_t kMostElsewhere = std::uint64_t{1} << 48;  // more than any memory; sums do not overflow
    if (!read_count(params, "elsewhere_bytes", message.elsewhere_bytes) || message.elsewhere_bytes > kMostElsewhere)
        return R"("elsewhere_bytes" must be a count)";
    message.value = std::make_shared<const Json>(std::move(*value));
    return {};
}

}  // namespace

bool is_stream_message(std::string_view method) { return kind_of(method).has_value(); }

std::variant<StreamMessage, std::string> read_stream_message(json_rpc::Request&& request) {
    StreamMessage message{*kind_of(request.method), {}};
    if (!request.is_notification()) return request.method + ": this is a notification: it has no id";
    const std::string_view rejection = read_params(request.params, message);
    if (!rejection.empty()) return request.method + ": " + std::string(rejection);
    return message;
}

std::string ready(const Json& call, const std::vector<StreamInfo>& streams, const Window& window) {
    auto list = Json::array();
    for (const StreamInfo& stream : streams)
        list.push_back({{"name", stream.name}, {"flow", stream.reads ? "in" : "out"}});
    std::string text = start(Kind::ready, call);
    json_rpc::print_json(list, text.append(R"(,"streams":)"));
    json_rpc::print_json({{"items", window.items}, {"bytes", window.bytes}}, text.append(R"(,"window":)"));
    return text.append("}}");
}

std::string item_start(const Json& call, std::string_view stream) {
    return start(Kind::item, call, stream).append(R"(,"value":)");
}

std::string item_end(std::uint64_t elsewhere_bytes) {
    if (elsewhere_bytes == 0) return "}}";
    return R"(,"elsewhere_bytes":)" + std::to_string(elsewhere_bytes) + "}}";
}

std::string end(const Json& call, std::string_view stream) { return start(Kind::end, call, stream).append("}}"); }

std::string taken(const Json& call, std::string_view stream, std::uint64_t items) {
    return start(Kind::taken, call, stream).append(R"(,"items":)").append(std::to_string(items)).append("}}");
}

std::string stop(const Json& call, std::string_view stream) { return start(Kind::stop, call, stream).append("}}"); }

std::string cancel(const Json& call) { return start(Kind::cancel, call).append("}}"); }

}  // namespace shared_tensor::streams
