#pragma once

#include <chrono>
#include <string>

#include "codec/value.hpp"
#include "http/message.hpp"
#include "json_rpc/batch_writer.hpp"
#include "server/handle_grants.hpp"
#include "server/reply_text.hpp"
#include "service/outcome.hpp"
#include "tensor/exchange.hpp"
#include "util/memory_faults.hpp"

namespace shared_tensor::server {

/// Prints one answer; tensors go through `exchange` by its policy, objects as handles of `grants`. What can't be
/// printed becomes the error that says why, and so does a value when `memory`, which its tensors may lie in, failed.
/// Throws json_rpc::TextTooLong where the limit of `out` itself is too low.
void print_outcome(const json_rpc::Json& id, const service::CallOutcome& outcome, tensor::TensorExchange& exchange,
                   HandleGrants& grants, const FaultWatch& memory, const ReplyLimits& limits, json_rpc::LongText& out);
/// -32003 for a text that is longer than one answer may be.
json_rpc::Error too_long(std::size_t limit_bytes);
/// -32003 for a tensor that cannot be written as `data`.
json_rpc::Error too_many_elements(const tensor::TooManyElements& tensor);

/// The HTTP answer around printed JSON: plain, or in frame form when tensors went by body.
http::Response finish_reply(ReplyText json, const tensor::TensorExchange& exchange);

/// What fails below JSON-RPC: a status of HTTP, with the error as body.
http::Response refusal(int status, const json_rpc::Error& error);
/// A client that asks more often than it may (-32001).
json_rpc::Error too_many_requests(std::chrono::milliseconds wait);
/// No thread can be spared for a request that waits (http::Exchange::may_take_long).
json_rpc::Error no_thread();
/// 503 and Retry-After for the two errors that ask a client to come back; 200 for all others.
http::Response error_reply(const json_rpc::Json& id, const json_rpc::Error& error);
void set_status(http::Response& response, const json_rpc::Error& error);

}  // namespace shared_tensor::server
