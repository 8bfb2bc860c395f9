#include "server/rpc/reply.hpp"

#include <span>
#include <string>

#include "base/log/log.hpp"
#include "protocol/codec/frame.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::server {

namespace {

/// `owner` is kept alive as long as the part.
net::BodyPart part_of(std::string text, std::shared_ptr<const void> owner = nullptr) {
    struct Held {
        std::string text;
        std::shared_ptr<const void> owner;
    };
    const auto held = std::make_shared<const Held>(Held{std::move(text), std::move(owner)});
    return {std::as_bytes(std::span(held->text)), held};
}

}  // namespace

void ReplyText::make_room(std::size_t bytes) {
    if (client_ != nullptr && client_->gone()) {
        log::debug("an answer is not written to its end: its client is gone");
        throw ReplyStopped(json_rpc::cancelled("the client has gone"));
    }
    auto share = all_->hold(*principal_, bytes);
    if (share == nullptr) {
        throw ReplyStopped(json_rpc::out_of_memory(
            "the answer needs more bytes in flight than are left (--max-bytes-in-flight, of one client half of it): "
            "ask again later, or take tensors by another transport (Shared-Tensor-Accept: shm, body)"));
    }
    if (shares_ == nullptr) shares_ = std::make_shared<Shares>();
    shares_->push_back(std::move(share));
}

std::vector<net::BodyPart> ReplyText::take_parts() {
    std::vector<net::BodyPart> parts;
    for (std::string& piece : take_pieces())
        parts.push_back(part_of(std::move(piece), shares_));
    return parts;
}

std::vector<net::BodyPart> ReplyText::take_frame() {
    if (is_one_piece()) return {part_of(codec::frame_head(take_whole()))};
    const std::size_t bytes = size();
    std::vector<net::BodyPart> parts = take_parts();
    parts.insert(parts.begin(), part_of(codec::frame_prefix(bytes)));
    parts.push_back({std::as_bytes(std::span(codec::frame_padding(bytes))), nullptr});
    return parts;
}

using json_rpc::Error;
using json_rpc::Json;

namespace {

void print_value(const Json& id, const codec::Value& value, tensor::TensorTransfer& transfer, IssuedHandles& issued,
                 json_rpc::LongText& out) {
    if (value.is_plain()) return json_rpc::print_result(id, value.json, out);
    const codec::DescribeObject describe = [&](const ObjectPointer& object) { return issued.describe(object); };
    codec::PlaceholderPrinter placeholders(value, transfer, describe);
    json_rpc::print_result(id, value.json, out, &placeholders);
}

/// Returns the code of the error.
int print_error(const Json& id, const Error& error, json_rpc::LongText& out) {
    std::string text;
    json_rpc::print({id, error}, text);
    out += text;
    return error.code;
}

json_rpc::Error too_long(std::size_t limit_bytes) {
    return json_rpc::response_too_large(limit_bytes,
                                        "ask for less at a time, take large tensors by another transport "
                                        "(Shared-Tensor-Accept: body, or shm on the daemon's host), or raise the "
                                        "daemon's --max-reply-json-bytes");
}

json_rpc::Error too_many_elements(const tensor::TooManyElements& tensor) {
    return json_rpc::make_error(
        json_rpc::ErrorCode::response_too_large,
        {{"limit_elements", tensor.limit()},
         {"elements", tensor.elements()},
         {"detail",
          "take large tensors by another transport (Shared-Tensor-Accept: base64, body, or shm on the daemon's host), "
          "or raise the daemon's --max-reply-data-elements"}});
}

}  // namespace

std::optional<Error> unprintable(std::size_t limit_bytes) {
    try {
        throw;
    } catch (const tensor::TooManyElements& error) {
        return too_many_elements(error);
    } catch (const ReplyStopped& stopped) {
        return stopped.error();
    } catch (const tensor::TransportNotPossible& error) {
        return json_rpc::transport_not_possible(error.reasons_json());
    } catch (const TooManyHandles& error) {
        return json_rpc::out_of_memory(error.what());
    } catch (const json_rpc::TextTooLong&) {
        return too_long(limit_bytes);
    } catch (...) {
        return std::nullopt;
    }
}

int print_outcome(const Json& id, const runtime::CallOutcome& outcome, tensor::TensorTransfer& transfer,
                  IssuedHandles& issued, const FaultWatch& memory, const ReplyLimits& limits, json_rpc::LongText& out) {
    if (outcome.failed()) return print_error(id, *outcome.error(), out);
    const std::size_t start = out.size(), whole_limit = out.limit();
    const bool batch_ends_first = whole_limit - start < limits.max_json_bytes;
    if (!batch_ends_first) out.set_limit(start + limits.max_json_bytes);
    std::optional<Error> error;
    try {
        print_value(id, *outcome.value(), transfer, issued, out);
    } catch (const json_rpc::TextTooLong&) {
        if (batch_ends_first) {
            issued.take_back();
            throw;
        }
        error = too_long(limits.max_json_bytes);
    } catch (const std::bad_alloc&) {
        error = unprintable(limits.max_json_bytes)
                    .value_or(json_rpc::out_of_memory("the answer needed more memory than there is"));
    } catch (const std::exception& thrown) {
        error = unprintable(limits.max_json_bytes);
        if (!error) {
            log::error("an answer could not be written: ", thrown.what());
            error = json_rpc::internal_error();
        }
    }
    out.set_limit(whole_limit);
    // A plain value does not lie in that memory: the memory was checked when the value was made.
    if (!error && !outcome.value()->is_plain() && memory.failed()) error = runtime::memory_failed();
    if (!error) return 0;
    issued.take_back();
    out.truncate(start);
    return print_error(id, *error, out);
}

net::Response finish_reply(ReplyText json, const tensor::TensorTransfer& transfer) {
    net::Response response;
    if (std::string transports = transfer.summary(); !transports.empty())
        response.headers.add("Shared-Tensor-Transport", std::move(transports));
    if (transfer.body().parts().empty()) {
        response.content_type = "application/json";
        if (json.is_one_piece()) {
            response.text = json.take_whole();
        } else {
            response.parts = json.take_parts();
        }
        return response;
    }
    response.content_type = codec::kFrameContentType;
    response.parts = json.take_frame();
    const auto& tensors = transfer.body().parts();
    response.parts.insert(response.parts.end(), tensors.begin(), tensors.end());
    return response;
}

namespace {

bool asks_to_come_back(const Error& error) {
    return error.is(json_rpc::ErrorCode::busy) || error.is(json_rpc::ErrorCode::shutting_down);
}

net::Response response_of(int status, const Json& id, const Error& error) {
    std::string text;
    json_rpc::print({id, error}, text);
    return net::Response::json(status, std::move(text));
}

void add_retry_after(net::Response& response, const Error& error) {
    const auto millis = error.data.is_object() ? error.data.value("retry_after_ms", 1000) : 1000;
    response.headers.add("Retry-After", std::to_string((millis + 999) / 1000));
}

}  // namespace

void set_status(net::Response& response, const Error& error) {
    if (!asks_to_come_back(error)) return;
    response.status = 503;
    add_retry_after(response, error);
}

net::Response error_response(int status, const Error& error) {
    net::Response response = response_of(status, nullptr, error);
    if (error.is(json_rpc::ErrorCode::busy)) add_retry_after(response, error);
    return response;
}

net::Response error_response(const Rejected& rejected) {
    net::Response response = error_response(rejected.status, rejected.error);
    const Json& data = rejected.error.data;
    const bool is_about_coding = data.is_object() && data.value("parameter", "") == "Content-Encoding";
    if (rejected.status == 415 && is_about_coding) response.headers.add("Accept-Encoding", "zstd, gzip");
    return response;
}

net::Response busy_response(std::string_view reason) {
    return error_response(503, json_rpc::busy(std::chrono::seconds(1), reason));
}

json_rpc::Error too_many_requests(std::chrono::milliseconds wait) {
    return json_rpc::busy(wait, "this client sends more requests a second than --max-client-requests allows");
}

json_rpc::Error no_thread() {
    return json_rpc::busy(std::chrono::seconds(1),
                          "no thread can be spared for a call that waits: try again later; if it stays so, raise the "
                          "server's limit of threads (ulimit -u, pids.max) or of memory");
}

net::Response error_reply(const Json& id, const Error& error) {
    net::Response response = response_of(200, id, error);
    set_status(response, error);
    return response;
}

}  // namespace shared_tensor::server
