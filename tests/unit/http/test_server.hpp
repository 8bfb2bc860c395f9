#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "http/server.hpp"
#include "support/event.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::test {

/// Answers every request with its own body, unless a test says otherwise.
class EchoHandler : public http::Handler {
public:
    std::function<std::variant<http::BodyPlan, http::Response>(const http::RequestHead&)> on_admit;
    std::function<http::Response(http::Request, http::ResponseStream&)> on_handle;
    std::function<std::optional<http::WebSocketPlan>(const http::RequestHead&)> on_upgrade;
    std::function<bool(const http::Peer&)> on_trust;
    http::BodyPlan plan{std::size_t{1} << 20, false};

    std::variant<http::BodyPlan, http::Response> admit(const http::RequestHead& head) override {
        admitted_.with([&](auto& paths) { paths.push_back(head.path); });
        return on_admit ? on_admit(head) : plan;
    }
    http::Response handle(http::Request request, http::ResponseStream& response_stream) override {
        if (on_handle) return on_handle(std::move(request), response_stream);
        return http::Response::json(200, std::string(request.text()));
    }
    std::optional<http::WebSocketPlan> upgrade(const http::RequestHead& head) override {
        return on_upgrade ? on_upgrade(head) : std::nullopt;
    }
    bool trusts(const http::Peer& peer) override { return !on_trust || on_trust(peer); }
    bool is_about_health(const http::RequestHead& head) override { return head.path == "/healthz"; }
    http::Response rejection(int status, std::string_view reason, const http::RequestHead* /*head*/) override {
        return http::Response::json(status, "fault: " + std::string(reason));
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
    explicit TestServer(http::ServerOptions options = {}) : server(std::move(options), handler) {}
    void start() { server.start(); }
    int port() const { return server.port(); }

    EchoHandler handler;
    http::Server server;
};

}  // namespace shared_tensor::test
