#include "client/call/request_sender.hpp"

#include <stop_token>
#include <utility>

#include "base/concurrency/either_stop.hpp"
#include "net/web_socket/web_socket_handshake.hpp"

namespace shared_tensor::client {

namespace {

class HttpRequestSender final : public RequestSender {
public:
    explicit HttpRequestSender(net::ClientOptions options) : options_(options), client_(std::move(options)) {}

    net::ClientResponse send(const net::ClientRequest& request) override { return client_.send(request); }
    std::variant<std::shared_ptr<net::WebSocket>, net::ClientResponse> connect_web_socket(
        net::ClientRequest request) override {
        net::WebSocketLimits limits;
        limits.max_text_bytes = limits.max_binary_bytes = options_.max_response_bytes;
        const std::stop_token of_call = request.stop;
        const EitherStop either(stop_.get_token(), of_call);
        request.stop = either.token();
        try {
            return net::connect_web_socket(options_.endpoint, std::move(request), options_.connect_timeout, limits,
                                           buffers_);
        } catch (const net::TransportError&) {
            if (!of_call.stop_requested()) throw;
            throw net::TransportError(net::TransportError::Kind::cancelled, false, "its caller cancelled it");
        }
    }
    std::shared_ptr<PooledBuffer> take_buffer(std::size_t bytes) override { return client_.take_buffer(bytes); }
    void shutdown() override {
        client_.shutdown();
        stop_.request_stop();
    }
    net::Client::Stats stats() const override { return client_.stats(); }

private:
    const net::ClientOptions options_;
    net::Client client_;
    BufferPool buffers_;     // for messages of WebSockets
    std::stop_source stop_;  // ends handshakes of WebSockets
};

}  // namespace

net::ClientOptions http_options(const ClientOptions& options) {
    net::ClientOptions http;
    http.endpoint = net::Endpoint::parse(options.url);
    if (http.endpoint.tls) http.endpoint.tls_client = net::TlsClient::load(options.tls);
    http.max_connections = options.connections;
    http.idle_limit = options.idle_limit;
    http.connect_timeout = options.connect_timeout;
    http.max_response_bytes = options.max_answer_bytes;
    return http;
}

std::unique_ptr<RequestSender> http_request_sender(net::ClientOptions options) {
    return std::make_unique<HttpRequestSender>(std::move(options));
}

}  // namespace shared_tensor::client
