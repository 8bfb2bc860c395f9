#include "server/router.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "net/message/fields.hpp"
#include "net/message/text.hpp"
#include "net/web_socket/web_socket_handshake.hpp"
#include "protocol/codec/frame.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "server/access_log.hpp"
#include "server/auth/access.hpp"
#include "server/dashboard/dashboard.hpp"
#include "server/files/files.hpp"
#include "server/methods/rejected.hpp"
#include "server/rpc/content_coding.hpp"
#include "server/rpc/reply.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::string_view kRpcPath = "/jsonrpc";
constexpr std::array<std::string_view, 4> kGetPaths = {"/healthz", "/readyz", "/metrics", "/openrpc.json"};

bool is_tensor_path(std::string_view path) { return path.starts_with(kTensorPrefix); }

bool is_get_path(std::string_view path) {
    return std::find(kGetPaths.begin(), kGetPaths.end(), path) != kGetPaths.end();
}

net::Response not_found() {
    return error_response(404, json_rpc::invalid_request("no such path: POST /jsonrpc, GET /ws, GET and PUT "
                                                         "/tensors/NAME, GET /healthz /readyz /metrics /openrpc.json"));
}

net::Response wrong_method(std::string allowed) {
    net::Response response = error_response(405, json_rpc::invalid_request("this path takes " + allowed));
    response.headers.add("Allow", std::move(allowed));
    return response;
}

/// RFC 9110, 11.6.1: a 401 response names the authentication scheme.
net::Response access_rejected(const Rejection& rejected) {
    if (rejected.status == 503) return busy_response(rejected.reason);
    net::Response response = error_response(rejected.status, json_rpc::not_authorised(rejected.reason));
    if (rejected.status == 401) response.headers.add("WWW-Authenticate", "Bearer");
    return response;
}

/// Returns the method that a token must allow for a request under /tensors/; empty if it need not allow any.
std::string_view method_of_path(const net::RequestHead& head) {
    const bool is_lease = head.path.starts_with("/tensors/l-");  // no name begins so; the lease must be the caller's
    if (is_lease && (head.method == "GET" || head.method == "HEAD")) return {};
    const bool reads =
        head.method == "GET" || head.method == "POST" || (head.method == "HEAD" && !is_about_upload(head));
    return reads ? "tensor.get" : "tensor.put";
}

/// The answer to a request for a WebSocket that was not upgraded.
net::Response not_upgraded(const net::RequestHead& head) {
    if (head.method != "GET") return wrong_method("GET");
    const std::string_view rejection = net::rejection_of_handshake(head);
    if (rejection.empty()) return busy_response();
    net::Response response =
        error_response(net::asks_for_web_socket(head) ? 400 : 426, json_rpc::invalid_request(rejection));
    response.headers.add("Upgrade", "websocket");
    return response;
}

}  // namespace

/// What the head of a request says. Made once per request, and valid until the request is answered.
struct Router::Admission final : net::Admission {
    enum class Path { rpc, tensor, socket, other };
    Admission(Path the_path, Principal principal) : path(the_path), who(std::move(principal)) {}

    const Path path;
    const Principal who;               // with its permissions and its budgets
    bool is_frame = false;             // JSON followed by tensors; else only JSON (Path::rpc)
    std::shared_ptr<const void> part;  // keeps the upload that this request belongs to
};

namespace {

bool is_json(std::string_view media_type) {
    constexpr std::array<std::string_view, 3> kJson = {"application/json", "application/json-rpc",
                                                       "application/jsonrequest"};
    return std::any_of(kJson.begin(), kJson.end(),
                       [&](std::string_view json) { return net::same_token(media_type, json); });
}

/// The name of a header that comes more than once although it is no list (RFC 9110, section 5.3), since its values
/// could contradict each other; empty if there is none.
std::string_view repeated_header(const net::Headers& headers) {
    constexpr std::array<std::string_view, 4> kSingle = {"Content-Type", "Content-Range", "Range", "Idempotency-Key"};
    constexpr std::string_view kOurs = "Shared-Tensor-";
    for (const auto& [name, value] : headers) {
        const auto is_name = [&name = name](std::string_view other) { return net::same_token(name, other); };
        const bool is_single = net::same_token(std::string_view(name).substr(0, kOurs.size()), kOurs) ||
                               std::any_of(kSingle.begin(), kSingle.end(), is_name);
        if (is_single && headers.count(name) > 1) return name;
    }
    return {};
}

}  // namespace

std::string Router::request_id(const net::RequestHead* head) {
    const auto given = head != nullptr ? head->headers.find(net::kRequestId) : std::nullopt;
    return given && net::is_request_id(*given) ? std::string(*given) : request_ids_.next();
}

void Router::served(const net::ServedRequest& request) noexcept {
    const auto* const admission = static_cast<const Admission*>(request.admission);
    if (all_.tracer != nullptr && admission != nullptr && admission->path == Admission::Path::tensor)
        trace_file(*all_.tracer, request, admission->who.name);
    if (all_.access_log == nullptr) return;
    write_access_line(*all_.access_log, request, admission != nullptr ? admission->who.name : std::string_view());
}

/// So that a client that traces its calls finds the answer's trace.
void Router::echo_trace(const net::RequestHead& head, net::Headers& headers) {
    constexpr const char* kField = "traceparent";
    const auto given = head.headers.find(kField);
    if (given && net::is_traceparent(*given)) headers.add(kField, std::string(*given));
}

net::Handler::Verdict Router::admit(const net::RequestHead& head, bool is_handshake) {
    if (auto preflight = answer_preflight(head, all_.access)) return std::move(*preflight);
    Verdict verdict = plan(head, is_handshake);
    auto* const rejection = std::get_if<net::Response>(&verdict);
    auto* const plan = std::get_if<net::BodyPlan>(&verdict);
    net::Headers* const headers = rejection != nullptr ? &rejection->headers
                                  : plan != nullptr    ? &plan->response_headers
                                                       : nullptr;
    if (headers == nullptr) return verdict;
    let_page_read(head, all_.access, *headers);
    echo_trace(head, *headers);
    return verdict;
}

net::Handler::Verdict Router::plan(const net::RequestHead& head, bool is_handshake) {
    using Path = Admission::Path;
    if (all_.options.dashboard && is_dashboard_path(head.path)) {
        const auto rejected = all_.access.check_page(head);
        if (!rejected) return dashboard_file(head);
        all_.rejections.count(rejected->why);
        return access_rejected(*rejected);
    }
    auto checked = all_.access.check(head);
    if (const auto* rejected = std::get_if<Rejection>(&checked)) {
        all_.rejections.count(rejected->why);
        return access_rejected(*rejected);
    }
    const Path path = head.path == kRpcPath                ? Path::rpc
                      : is_tensor_path(head.path)          ? Path::tensor
                      : head.path == SocketEndpoint::kPath ? Path::socket
                                                           : Path::other;
    const auto admission = std::make_shared<Admission>(path, std::move(std::get<Principal>(checked)));
    const Principal& who = admission->who;
    if (path == Path::socket && is_handshake) {
        if (auto plan = sockets_.plan(head, who)) {
            plan->admission = admission;
            return std::move(*plan);
        }
    }
    if (auto rejection = reject(head, *admission)) return counted(std::move(*rejection));
    net::BodyPlan plan{0, false};
    plan.admission = admission;
    if (who.use != nullptr) plan.client_connections = who.use->connections;
    if (path == Path::other) return plan;
    if (who.use != nullptr) plan.client_budget = who.use->bytes_in_flight;
    if (path == Path::tensor) {
        plan.takes_long = true;
        plan.response_headers.add("X-Content-Type-Options", "nosniff");  // no tensor is a script of the dashboard
        if (head.method == "POST") plan.max_bytes = kMaxSwarmReport;
        if (head.method != "PUT") return plan;
        if (auto rejection = reject_put(all_, head, who)) return counted(std::move(*rejection));
        admission->part = part_begins(all_, head, who);
        plan.max_bytes = all_.options.http.max_body_bytes;
        plan.binary = true;
        return plan;
    }
    const std::string_view type = without_parameters(head.headers.find("Content-Type").value_or(""));
    admission->is_frame = plan.binary = net::same_token(type, codec::kFrameContentType);
    plan.max_bytes = plan.binary ? all_.options.http.max_body_bytes : all_.options.requests.json.max_bytes;
    if (plan.binary || is_json(type)) return plan;
    return counted(error_response(
        415, json_rpc::invalid_request("Content-Type must be application/json or application/vnd.shared-tensor")));
}

std::optional<net::Response> Router::reject(const net::RequestHead& head, const Admission& admission) {
    const Principal& who = admission.who;
    if (admission.path == Admission::Path::tensor) {
        if (const std::string_view method = method_of_path(head); !method.empty() && !who.may_call(method))
            return error_response(403, json_rpc::not_authorised(reason_against(method)));
    }
    if (head.path == "/metrics" && !who.may_read_metrics()) {
        return error_response(403, json_rpc::not_authorised("/metrics is for admins and for tokens with allow=metrics; "
                                                            "--operations-listen serves it on a port of its own"));
    }
    if (!is_about_health(head)) {
        if (const auto wait = who.use != nullptr ? who.use->requests.take() : std::nullopt)
            return error_response(429, too_many_requests(*wait));  // RFC 6585, section 4
    }
    if (const std::string_view name = repeated_header(head.headers); !name.empty())
        return error_response(400, json_rpc::invalid_request(std::string(name) + " comes more than once"));
    switch (admission.path) {
        case Admission::Path::rpc: return head.method == "POST" ? std::nullopt : std::optional(wrong_method("POST"));
        case Admission::Path::socket: return not_upgraded(head);
        case Admission::Path::tensor: {
            const bool taken = head.method == "GET" || head.method == "HEAD" || head.method == "PUT" ||
                               head.method == "POST" || (head.method == "DELETE" && is_about_upload(head));
            const char* const allowed = is_about_upload(head) ? "GET, HEAD, POST, PUT, DELETE" : "GET, HEAD, POST, PUT";
            return taken ? std::nullopt : std::optional(wrong_method(allowed));
        }
        case Admission::Path::other: break;
    }
    if (!is_get_path(head.path)) return not_found();
    if (head.method != "GET" && head.method != "HEAD") return wrong_method("GET, HEAD");
    return std::nullopt;
}

net::Response Router::handle(net::Request request, net::ResponseStream& response_stream) {
    using Path = Admission::Path;
    const auto held = std::static_pointer_cast<const Admission>(std::move(request.admission));
    const Admission& admission = *held;
    if (admission.path == Path::other) return get(request.head.path);
    if (admission.who.is_revoked())
        return access_rejected(
            {401, "this server requires a token, and the token of this request was revoked while the request arrived",
             RejectedFor::token});
    if (admission.path == Path::tensor) return tensor(request, admission.who, response_stream);
    return rpc(std::move(request), admission, response_stream);
}

net::Response Router::rpc(net::Request request, const Admission& admission, net::ResponseStream& response_stream) const
    try {
    decode(request, admission);
    net::Response response = rpc_.answer(request, admission.is_frame, admission.who, response_stream);
    const CodingOffer& offer = all_.compression;
    const bool tells = request.head.headers.find("Shared-Tensor-Coding").has_value();
    if (tells && offer.for_tensors()) response.headers.add("Shared-Tensor-Coding", "zstd");
    if (!request.head.headers.find("Accept-Encoding")) return response;
    response.headers.add("Vary", "Accept-Encoding");
    if (response.content_type == "application/json")
        compress_text(request.head, offer, all_.transports.compression(), response, response_stream);
    return response;
} catch (const Rejected& rejected) {
    return error_response(rejected);
} catch (const std::bad_alloc&) {
    return error_response(503, json_rpc::out_of_memory("there is no memory for the request"));
}

/// Decompresses the body of a request.
void Router::decode(net::Request& request, const Admission& admission) const {
    const Coding coding = known_coding(request.head.headers);
    if (coding == Coding::none) return;
    const Decoded plain = decoded(
        request, coding, admission.is_frame ? all_.options.http.max_body_bytes : all_.options.requests.json.max_bytes,
        all_.transports.compression(), [&](std::size_t bytes) { return all_.hold(admission.who, bytes); });
    struct Held {
        std::shared_ptr<PooledBuffer> buffer;
        std::shared_ptr<const void> share;
    };
    const auto held = std::make_shared<Held>(Held{buffers_.take(plain.bytes.size()), plain.share});
    held->buffer->resize(plain.bytes.size());
    if (!plain.bytes.empty()) std::memcpy(held->buffer->data(), plain.bytes.data(), plain.bytes.size());
    request.body = {held, held->buffer.get()};
}

net::Response Router::tensor(const net::Request& request, const Principal& who,
                             net::ResponseStream& response_stream) const try {
    const net::RequestHead& head = request.head;
    if (head.method == "PUT") return put_file(all_, request, who);
    if (head.method == "DELETE") return abandon_upload(all_, head, who);
    if (head.method == "HEAD" && is_about_upload(head)) return upload_state(all_, head, who);
    return get_file(all_, request, who, response_stream);
} catch (const Rejected& rejected) {
    return error_response(rejected);
}

net::Response Router::get(const std::string& path) const {
    if (path == "/openrpc.json") return net::Response::json(200, all_.open_rpc.document()->text);
    return state_.answer(path);
}

net::Response Router::rejection(int status, std::string_view reason, const net::RequestHead* head) {
    net::Response response =
        status == 503 ? busy_response(reason) : error_response(status, json_rpc::invalid_request(reason));
    if (head == nullptr) return response;
    let_page_read(*head, all_.access, response.headers);
    echo_trace(*head, response.headers);
    return response;
}

}  // namespace shared_tensor::server
