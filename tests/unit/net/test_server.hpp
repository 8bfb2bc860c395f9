#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "net/client/client.hpp"
#include "net/server/server.hpp"
#include "support/event.hpp"
#include "tls_peer.hpp"

namespace shared_tensor::test {

/// Answers every request with its own body, unless a test says otherwise.
class EchoHandler : public net::Handler {
public:
    std::function<std::variant<net::BodyPlan, net::Response>(const net::RequestHead&)> on_admit;
    std::function<net::Response(net::Request, net::ResponseStream&)> on_handle;
    std::function<std::optional<net::WebSocketPlan>(const net::RequestHead&)> on_upgrade;
    std::function<bool(const net::Peer&)> on_trust;
    net::BodyPlan plan{std::size_t{1} << 20, false};

    Verdict admit(const net::RequestHead& head, bool is_handshake) override {
        if (is_handshake && on_upgrade) {
            if (auto web_socket = on_upgrade(head)) return std::move(*web_socket);
        }
        admitted_.with([&](auto& paths) { paths.push_back(head.path); });
        if (!on_admit) return plan;
        return std::visit([](auto verdict) -> Verdict { return verdict; }, on_admit(head));
    }
    net::Response handle(net::Request request, net::ResponseStream& response_stream) override {
        if (on_handle) return on_handle(std::move(request), response_stream);
        return net::Response::json(200, std::string(request.text()));
    }
    bool trusts(const net::Peer& peer) override { return !on_trust || on_trust(peer); }
    bool is_about_health(const net::RequestHead& head) override { return head.path == "/healthz"; }
    net::Response rejection(int status, std::string_view reason, const net::RequestHead* /*head*/) override {
        return net::Response::json(status, "fault: " + std::string(reason));
    }
    std::vector<std::string> admitted() const {
        return admitted_.with([](const auto& paths) { return paths; });
    }

private:
    Guarded<std::vector<std::string>> admitted_;
};

/// Waits for something that other threads bring about; false after half a minute.
inline bool eventually(const std::function<bool()>& holds) {
    const SteadyTime until = patience();
    while (!holds()) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

/// The real server on a port of the kernel's choice.
struct TestServer {
    explicit TestServer(net::ServerOptions options = {}) : server(std::move(options), handler) {}
    void start() { server.start(); }
    int port() const { return server.port(); }

    EchoHandler handler;
    net::Server server;
};

/// One that runs from the start.
struct EchoServer : TestServer {
    explicit EchoServer(net::ServerOptions options = {}) : TestServer(std::move(options)) { start(); }
};

inline net::ClientOptions options_for(int port) {
    net::ClientOptions options;
    options.endpoint = net::Endpoint::parse("http://127.0.0.1:" + std::to_string(port));
    return options;
}

/// How clients reach a server.
enum class Over { tcp, tls, unix_socket };

/// The running server, reached in one way, and what its clients need to know.
struct EitherServer : TestServer {
    explicit EitherServer(Over over, net::ServerOptions options = {})
        : TestServer(with(over, std::move(options))), over_(over) {
        handler.plan.max_bytes = std::size_t{1} << 30;
        start();
    }
    net::ClientOptions options_of_client() const {
        if (over_ == Over::tls) return tls_files().client_options(port());
        net::ClientOptions options = options_for(over_ == Over::tcp ? port() : 1);
        if (over_ == Over::unix_socket) options.endpoint = net::Endpoint::parse("unix:" + unix_socket());
        return options;
    }
    /// A raw client after its handshake. `receive_buffer` as in RawClient.
    std::unique_ptr<RawClient> raw_client(int receive_buffer = 0) const {
        if (over_ == Over::unix_socket) return std::make_unique<RawClient>(unix_socket());
        RawClient client(port(), "127.0.0.1", receive_buffer);
        if (over_ == Over::tls) return std::make_unique<SafeClient>(std::move(client));
        return std::make_unique<RawClient>(std::move(client));
    }

private:
    static std::string unix_socket() { return tls_files().file("socket"); }
    static net::ServerOptions with(Over over, net::ServerOptions options) {
        if (over == Over::tls) options.tls = tls_files().tls();
        if (over == Over::unix_socket) {
            options.host.clear();
            options.unix_socket = unix_socket();
        }
        return options;
    }
    const Over over_;
};

struct SafeServer : EitherServer {
    explicit SafeServer(net::ServerOptions options = {}) : EitherServer(Over::tls, std::move(options)) {}
};

/// No limit can be the one that a test did not mean.
inline net::ServerOptions patient_options() {
    net::ServerOptions options;
    options.header_timeout = options.body_timeout = options.idle_timeout = options.write_timeout =
        std::chrono::milliseconds(600'000);
    return options;
}

inline net::ClientRequest text_request(std::string text, std::string path = "/jsonrpc") {
    net::ClientRequest request;
    request.path = std::move(path);
    request.text = std::move(text);
    request.deadline = patience();
    return request;
}

/// What send() threw.
inline net::TransportError failure_of(net::Client& client, const net::ClientRequest& request = text_request("x")) {
    try {
        client.send(request);
    } catch (const net::TransportError& error) {
        return error;
    }
    throw std::logic_error("the request was answered");
}

/// An answer of `bytes`, which it does not copy.
inline net::Response answer_of(const std::string& bytes) {
    net::Response response;
    response.parts.push_back({std::as_bytes(std::span(bytes)), nullptr});
    return response;
}

}  // namespace shared_tensor::test
