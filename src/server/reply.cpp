#include "server/reply.hpp"

#include "codec/frame.hpp"
#include "json_rpc/print.hpp"
#include "util/log.hpp"

namespace shared_tensor::server {

using json_rpc::Error;
using json_rpc::Json;

namespace {

void print_value(const Json& id, const codec::Value& value, tensor::TensorExchange& exchange, HandleGrants& grants,
                 std::string& out) {
    if (value.is_plain()) return json_rpc::print_result(id, value.json, out);
    const codec::DescribeObject describe = [&](const ObjectPointer& object) { return grants.describe(object); };
    codec::PlaceholderPrinter placeholders(value, exchange, describe);
    json_rpc::print_result(id, value.json, placeholders, out);
}

/// The error instead of a value that can't be printed, or nothing.
std::optional<Error> try_print(const Json& id, const codec::Value& value, tensor::TensorExchange& exchange,
                               HandleGrants& grants, std::string& out) {
    try {
        print_value(id, value, exchange, grants, out);
        return std::nullopt;
    } catch (const tensor::TransportNotPossible& error) {
        return json_rpc::transport_not_possible(error.reasons_json());
    } catch (const TooManyHandles& error) {
        return json_rpc::out_of_memory(error.what());
    } catch (const std::bad_alloc&) {
        return json_rpc::out_of_memory("the answer needed more memory than there is");
    } catch (const std::exception& error) {
        log::error("an answer could not be written: ", error.what());
        return json_rpc::internal_error();
    }
}

}  // namespace

void print_outcome(const Json& id, const service::CallOutcome& outcome, tensor::TensorExchange& exchange,
                   HandleGrants& grants, const ReplyLimits& limits, std::string& out) {
    if (outcome.failed()) return json_rpc::print({id, *outcome.error()}, out);
    const std::size_t start = out.size();
    auto error = try_print(id, *outcome.value(), exchange, grants, out);
    if (!error && out.size() - start > limits.max_json_bytes)
        error = json_rpc::response_too_large(limits.max_json_bytes);
    if (!error) return;
    grants.take_back();
    out.resize(start);
    json_rpc::print({id, std::move(*error)}, out);
}

http::Response finish_reply(std::string json, const tensor::TensorExchange& exchange) {
    http::Response response;
    if (std::string ways = exchange.summary(); !ways.empty())
        response.headers.add("Shared-Tensor-Transport", std::move(ways));
    if (exchange.body().parts().empty()) {
        response.content_type = "application/json";
        response.text = std::move(json);
        return response;
    }
    response.content_type = codec::kFrameContentType;
    const auto head = std::make_shared<const std::string>(codec::frame_head(json));
    response.parts.push_back({std::as_bytes(std::span(*head)), head});
    for (const tensor::BodyPart& part : exchange.body().parts())
        response.parts.push_back({part.bytes, part.owner});
    return response;
}

void set_status(http::Response& response, const Error& error) {
    const bool busy = error.is(json_rpc::ErrorCode::busy);
    if (!busy && !error.is(json_rpc::ErrorCode::shutting_down)) return;
    response.status = 503;
    const auto millis = busy && error.data.is_object() ? error.data.value("retry_after_ms", 1000) : 1000;
    response.headers.add("Retry-After", std::to_string((millis + 999) / 1000));
}

http::Response refusal(int status, const Error& error) {
    std::string text;
    json_rpc::print(json_rpc::Response{nullptr, error}, text);
    return http::Response::json(status, std::move(text));
}

json_rpc::Error too_many_requests(std::chrono::milliseconds wait) {
    Error error = json_rpc::busy(wait);
    error.data["detail"] = "this client asks more often than it may: --max-client-requests a second";
    return error;
}

http::Response error_reply(const Json& id, const Error& error) {
    std::string text;
    json_rpc::print({id, error}, text);
    http::Response response = http::Response::json(200, std::move(text));
    set_status(response, error);
    return response;
}

}  // namespace shared_tensor::server
