#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>

#include "http/message.hpp"
#include "json_rpc/message.hpp"
#include "streams/window.hpp"
#include "tensor/exchange.hpp"

namespace shared_tensor::server {

/// What comes with a call beside its parameters: HTTP headers, overridden by the request object's "meta".
struct CallMeta {
    tensor::ExportPolicy policy;
    std::optional<std::chrono::milliseconds> timeout;
    std::string idempotency_key;
    std::string session;
    streams::Window stream_window;  ///< of the streams that the caller reads
};

/// The headers of a request, as defaults for its items. An error answers the whole request.
std::variant<CallMeta, json_rpc::Error> read_headers(const http::Headers& headers);

/// The id of a request as the log shows it, shortened; empty for a notification.
std::string id_text(const std::optional<json_rpc::Json>& id);

/// What the body is: "Application/JSON; charset=utf-8" is "application/json". Empty without a Content-Type.
std::string media_type(const http::Headers& headers);

/// One item's own: `defaults` with what its "meta" says instead.
std::variant<CallMeta, json_rpc::Error> read_meta(const CallMeta& defaults, const json_rpc::Json& meta);

}  // namespace shared_tensor::server
