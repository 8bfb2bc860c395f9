#include "net/message/fields.hpp"
#include "server/files/files.hpp"

namespace shared_tensor::server {

void trace_file(SpanSink& spans, const net::ServedRequest& request, std::string_view principal) noexcept try {
    const net::RequestHead& head = *request.head;
    const std::string_view given = head.headers.find("traceparent").value_or("");
    const OpenSpan open = spans.begin(net::is_traceparent(given) ? given : "");
    const std::string name = head.method + " /tensors";
    const log::Field attributes[] = {
        {"http.request.method", std::string_view(head.method)},
        {"http.response.status_code", std::int64_t{request.status}},
        {"url.path", std::string_view(head.path)},
        {"shared_tensor.principal", principal},
        {"shared_tensor.request_id", request.id},
        {"shared_tensor.received_bytes", static_cast<std::int64_t>(request.bytes_in)},
        {"shared_tensor.sent_bytes", static_cast<std::int64_t>(request.bytes_out)},
    };
    const std::string error = request.status >= 400 ? std::to_string(request.status) : std::string();
    spans.end({Span::Kind::server, name, open.traceparent, open.parent, request.time, error, attributes});
} catch (const std::exception&) {
    // There is no memory for the span.
}

}  // namespace shared_tensor::server
