#include "server/auth/cors.hpp"

namespace shared_tensor::server {

namespace {

constexpr const char* kMethods = "GET, HEAD, POST, PUT, DELETE";
constexpr const char* kRequestHeaders =
    "Accept, Authorization, Content-Digest, Content-Encoding, Content-Range, Content-Type, Idempotency-Key, If-Match, "
    "If-None-Match, If-Range, Range, Request-Timeout, Shared-Tensor-Accept, Shared-Tensor-Coding, Shared-Tensor-Dtype, "
    "Shared-Tensor-Protocol, Shared-Tensor-Require, Shared-Tensor-Session, Shared-Tensor-Shape, Want-Content-Digest, "
    "traceparent";
constexpr const char* kResponseHeaders =
    "Accept-Ranges, Content-Digest, Content-Range, ETag, Retry-After, Server-Timing, "
    "Shared-Tensor-Coding, "
    "Shared-Tensor-Dtype, Shared-Tensor-Missing, Shared-Tensor-Shape, Shared-Tensor-Transport, Shared-Tensor-Upload, "
    "Shared-Tensor-Version";
constexpr const char* kRemembered = "600";  // seconds

}  // namespace

std::optional<net::Response> answer_preflight(const net::RequestHead& head, const Access& access) {
    if (head.method != "OPTIONS") return std::nullopt;
    if (!head.headers.find("Origin") || !head.headers.find("Access-Control-Request-Method")) return std::nullopt;
    if (access.check_place(head)) return std::nullopt;
    net::Response response;
    response.status = 204;
    let_page_read(head, access, response);
    response.headers.add("Access-Control-Allow-Methods", kMethods);
    response.headers.add("Access-Control-Allow-Headers", kRequestHeaders);
    response.headers.add("Access-Control-Max-Age", kRemembered);
    if (head.headers.find("Access-Control-Request-Private-Network"))
        response.headers.add("Access-Control-Allow-Private-Network", "true");
    return response;
}

void let_page_read(const net::RequestHead& head, const Access& access, net::Response& response) {
    if (!access.allows_origins()) return;
    response.headers.add("Vary", "Origin");
    const auto origin = head.headers.find("Origin");
    if (!origin || !access.is_allowed_origin(*origin)) return;
    response.headers.add("Access-Control-Allow-Origin", std::string(*origin));
    response.headers.add("Access-Control-Expose-Headers", kResponseHeaders);
}

}  // namespace shared_tensor::server
