#include "server/router.hpp"

#include <algorithm>
#include <array>

#include "codec/frame.hpp"
#include "http/web_socket_handshake.hpp"
#include "json_rpc/json_text.hpp"
#include "server/call_meta.hpp"
#include "server/reply.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::string_view kRpcPath = "/jsonrpc";
constexpr std::array<std::string_view, 3> kGetPaths = {"/healthz", "/readyz", "/openrpc.json"};

bool is_tensor_path(std::string_view path) { return path.starts_with(TensorEndpoint::kPrefix); }

bool is_get_path(std::string_view path) {
    return std::find(kGetPaths.begin(), kGetPaths.end(), path) != kGetPaths.end();
}

json_rpc::Error not_permitted(std::string_view reason) { return json_rpc::not_authorised(reason); }

http::Response not_found() {
    return refusal(
        404,
        json_rpc::invalid_request(
            "no such path: POST /jsonrpc, GET /ws, GET and PUT /tensors/NAME, GET /healthz /readyz /openrpc.json"));
}

http::Response wrong_method(std::string allowed) {
    http::Response response = refusal(405, json_rpc::invalid_request("this path takes " + allowed));
    response.headers.add("Allow", std::move(allowed));
    return response;
}

/// A request for a WebSocket that did not become one.
http::Response not_upgraded(const http::RequestHead& head) {
    if (head.method != "GET") return wrong_method("GET");
    const std::string_view fault = http::fault_of_handshake(head);
    if (fault.empty()) {
        http::Response response = refusal(503, json_rpc::busy(std::chrono::seconds(1)));
        response.headers.add("Retry-After", "1");
        return response;
    }
    http::Response response = refusal(http::asks_for_web_socket(head) ? 400 : 426, json_rpc::invalid_request(fault));
    response.headers.add("Upgrade", "websocket");
    return response;
}

}  // namespace

Router::Router(Parts parts) : parts_(std::move(parts)) { json_rpc::print_json(parts_.open_rpc, open_rpc_text_); }

std::variant<http::BodyPlan, http::Response> Router::admit(const http::RequestHead& head) {
    if (auto refused = refuse(head)) return std::move(*refused);
    if (is_tensor_path(head.path) && head.method == "PUT") {
        const auto who = parts_.access.check(head);
        if (const auto* principal = std::get_if<Principal>(&who)) {
            if (auto refused = parts_.uploads.refuse_head(head, *principal)) return std::move(*refused);
        }
        return http::BodyPlan{parts_.max_body_bytes, true};
    }
    if (head.path != kRpcPath) return http::BodyPlan{0, false};
    const std::string type = media_type(head.headers);
    if (type == codec::kFrameContentType) return http::BodyPlan{parts_.max_body_bytes, true};
    if (type == "application/json" || type == "application/json-rpc" || type == "application/jsonrequest") {
        return http::BodyPlan{parts_.max_json_bytes, false};
    }
    return refusal(415,
                   json_rpc::invalid_request("Content-Type must be application/json or application/vnd.shared-tensor"));
}

std::optional<http::Response> Router::refuse(const http::RequestHead& head) const {
    const auto principal = parts_.access.check(head);
    if (const auto* refused = std::get_if<Refusal>(&principal)) {
        http::Response response = refusal(refused->status, not_permitted(refused->reason));
        if (refused->status == 401) response.headers.add("WWW-Authenticate", "Bearer");
        return response;
    }
    if (head.path == kRpcPath) {
        if (head.method != "POST") return wrong_method("POST");
        return std::nullopt;
    }
    if (head.path == SocketEndpoint::kPath) return not_upgraded(head);
    if (is_tensor_path(head.path)) {
        const bool taken = head.method == "GET" || head.method == "HEAD" || head.method == "PUT" ||
                           (head.method == "DELETE" && UploadEndpoint::is_about_upload(head));
        return taken ? std::nullopt : std::optional(wrong_method("GET, HEAD, PUT"));
    }
    if (!is_get_path(head.path)) return not_found();
    if (head.method != "GET" && head.method != "HEAD") return wrong_method("GET, HEAD");
    return std::nullopt;
}

std::optional<http::WebSocketPlan> Router::upgrade(const http::RequestHead& head) {
    if (head.path != SocketEndpoint::kPath) return std::nullopt;
    const auto principal = parts_.access.check(head);
    if (std::holds_alternative<Refusal>(principal)) return std::nullopt;
    return parts_.sockets.plan(head, std::get<Principal>(principal));
}

http::Response Router::handle(http::Request request, http::Exchange& exchange) {
    const bool is_tensor = is_tensor_path(request.head.path);
    if (!is_tensor && request.head.path != kRpcPath) return get(request.head.path);
    const auto principal = parts_.access.check(request.head);
    if (const auto* refused = std::get_if<Refusal>(&principal))
        return refusal(refused->status, not_permitted(refused->reason));
    const Principal& who = std::get<Principal>(principal);
    return is_tensor ? tensor(request, who) : parts_.rpc.answer(request, who, exchange);
}

http::Response Router::tensor(const http::Request& request, const Principal& who) const {
    const http::RequestHead& head = request.head;
    if (head.method == "PUT") return parts_.uploads.put(request, who);
    if (head.method == "DELETE") return parts_.uploads.abandon(head, who);
    if (head.method == "HEAD" && UploadEndpoint::is_about_upload(head)) return parts_.uploads.state(head, who);
    return parts_.tensors.get(head, who);
}

http::Response Router::get(const std::string& path) const {
    if (path == "/openrpc.json") return http::Response::json(200, open_rpc_text_);
    if (path == "/healthz" || parts_.ready()) return http::Response::json(200, R"({"status":"ok"})");
    http::Response response = http::Response::json(503, R"({"status":"not ready"})");
    response.headers.add("Retry-After", "1");
    return response;
}

http::Response Router::fault(int status, std::string_view reason) {
    if (status == 503) return refusal(status, json_rpc::busy(std::chrono::seconds(1)));
    return refusal(status, json_rpc::invalid_request(reason));
}

}  // namespace shared_tensor::server
