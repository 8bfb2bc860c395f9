#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shared_tensor/json.hpp>

#include "client/async/async_core.hpp"
#include "client/call/core.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "support/event.hpp"
#include "support/manual_clock.hpp"

// Clients whose server is a list of answers: no socket and, unless a test brings ports, no tensors. The time of a
// ScriptedClient passes only when it pauses.

namespace shared_tensor::test {

using client::Core;
using codec::Json;

inline net::ClientResponse answer(int status, std::string_view body, std::string content_type = "application/json") {
    static BufferPool pool;
    net::ClientResponse response;
    response.status = status;
    response.headers.add("Content-Type", std::move(content_type));
    response.body = pool.take(body.size() + 1);
    response.body->resize(body.size());
    std::memcpy(response.body->data(), body.data(), body.size());
    return response;
}

inline std::string body_of(const net::ClientRequest& request) {
    std::string text = request.text;
    for (const auto& part : request.parts) {
        text.append(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
    }
    return text;
}

inline Json json_of(const net::ClientRequest& request) { return Json::parse(body_of(request)); }

inline Json result_for(const Json& request, const Json& result) {
    return {{"jsonrpc", "2.0"}, {"id", request.at("id")}, {"result", result}};
}

inline Json error_for(const Json& request, int code, const Json& data) {
    return {
        {"jsonrpc", "2.0"}, {"id", request.at("id")}, {"error", {{"code", code}, {"message", "It"}, {"data", data}}}};
}

/// What the server does with one request.
using Reply = std::function<net::ClientResponse(const net::ClientRequest&)>;

inline Reply gives(Json result) {
    return [result](const net::ClientRequest& request) {
        return answer(200, result_for(json_of(request), result).dump());
    };
}
inline Reply rejects(int code, Json data = nullptr, int status = 200) {
    return [=](const net::ClientRequest& request) {
        return answer(status, error_for(json_of(request), code, data).dump());
    };
}
inline Reply says(int status, std::string body, std::string content_type = "application/json") {
    return [=](const net::ClientRequest&) { return answer(status, body, content_type); };
}
inline Reply fails(net::TransportError::Kind kind, bool sent) {
    return [=](const net::ClientRequest&) -> net::ClientResponse { throw net::TransportError(kind, sent, "it broke"); };
}
inline Reply is_not_there() { return fails(net::TransportError::Kind::connect, false); }
inline Reply breaks() { return fails(net::TransportError::Kind::broken, true); }

/// Replies in the order of the script; the last one goes on for ever.
class ScriptedRequests final : public client::RequestSender {
public:
    explicit ScriptedRequests(std::vector<Reply> script) {
        state_.with([&](State& state) { state.script = {script.begin(), script.end()}; });
    }

    net::ClientResponse send(const net::ClientRequest& request) override {
        const Reply reply = state_.with([&](State& state) {
            if (state.down) return fails(net::TransportError::Kind::broken, false);
            state.requests.push_back(request);
            Reply next = state.script.front();
            if (state.script.size() > 1) state.script.pop_front();
            return next;
        });
        return reply(request);
    }
    std::shared_ptr<PooledBuffer> take_buffer(std::size_t bytes) override { return pool_.take(bytes); }
    void shutdown() override {
        state_.with([](State& state) { state.down = true; });
        ended.set();
    }
    net::Client::Stats stats() const override { return {1, 2, 300, 400}; }

    std::vector<net::ClientRequest> requests() const {
        return state_.with([](const State& state) { return state.requests; });
    }

    Event ended;  ///< the client shut it down

private:
    struct State {
        std::deque<Reply> script;
        std::vector<net::ClientRequest> requests;
        bool down = false;
    };
    Guarded<State> state_;
    BufferPool pool_;
};

/// No tensor crosses here.
class NoPorts : public client::TensorPorts {
public:
    std::unique_ptr<client::OutgoingTensors> outgoing(std::string_view) const override {
        throw std::logic_error("a tensor went out");
    }
    std::unique_ptr<codec::TensorPort> incoming(std::span<const std::byte>, std::shared_ptr<const void>,
                                                const std::string&) const override {
        throw std::logic_error("a tensor came in");
    }
};

inline ClientOptions options_for_tests() {
    ClientOptions options;
    options.url = "http://server:1";
    options.retry = fixed_delay(std::chrono::milliseconds(10), 4);
    return options;
}

/// What the call throws.
template <class Error, class Call>
Error thrown_by(Call call) {
    try {
        call();
    } catch (const Error& error) {
        return error;
    }
    throw std::logic_error("it did not throw");
}

/// A core, what it sent and how long it paused.
struct ScriptedClient {
    explicit ScriptedClient(std::vector<Reply> script, ClientOptions options = options_for_tests(),
                            std::unique_ptr<client::TensorPorts> ports = std::make_unique<NoPorts>())
        : sender(new ScriptedRequests(std::move(script))),
          shared_core(std::make_shared<Core>(std::move(options), dependencies(std::move(ports)))),
          core(*shared_core) {}

    template <class R = Json, class... Args>
    R call(std::string_view method, const Args&... args) {
        return call_with<R>({}, method, args...);
    }
    template <class R = Json, class... Args>
    R call_with(const CallOptions& options, std::string_view method, const Args&... args) {
        detail::ResultOf<R> result;
        core.call(method, detail::ArgumentsOf<Args...>(args...), result, options);
        return result.take();
    }
    Json sent(std::size_t index = 0) const { return json_of(sender->requests().at(index)); }
    std::size_t tries() const { return sender->requests().size(); }

    ManualClock clock;
    std::vector<std::chrono::milliseconds> pauses;
    ScriptedRequests* sender;  // owned by the core
    const std::shared_ptr<Core> shared_core;
    Core& core;

private:
    client::Dependencies dependencies(std::unique_ptr<client::TensorPorts> ports) {
        return {std::unique_ptr<client::RequestSender>(sender), std::move(ports), &clock, [this](SteadyTime time) {
                    const auto pause = time - clock.now();
                    pauses.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(pause));
                    clock.advance(pause);
                }};
    }
};

inline CallOptions within(std::chrono::milliseconds timeout) {
    CallOptions options;
    options.timeout = timeout;
    return options;
}

/// A client in real time, whose calls return futures. AsyncCaller drives its core in the same way.
struct ScriptedAsync {
    ScriptedAsync(std::vector<Reply> script, AsyncOptions options)
        : sender(new ScriptedRequests(std::move(script))),
          core(std::make_shared<client::AsyncCore>(
              std::move(options),
              client::Dependencies{
                  std::unique_ptr<client::RequestSender>(sender), std::make_unique<NoPorts>(), &real_clock(), {}})) {}
    ~ScriptedAsync() { core->stop(); }
    static AsyncOptions one_thread() {
        AsyncOptions options;
        options.client = options_for_tests();
        options.threads = 1;
        return options;
    }

    std::future<int> call(const CallOptions& options = {}) {
        auto slot = std::make_unique<detail::AsyncSlotOf<int>>();
        auto result = slot->future();
        core->start("f", detail::ArgumentsOf<>(), std::move(slot), options);
        return result;
    }
    void call_then(std::function<void(std::future<int>)> then) {
        core->start("f", detail::ArgumentsOf<>(), std::make_unique<detail::AsyncSlotOf<int>>(std::move(then)), {});
    }
    AsyncTask<int> submit(CallOptions options = {}) {
        auto slot = std::make_unique<detail::AsyncSlotOf<int>>();
        auto result = slot->future();
        return {core->start_task("train", detail::ArgumentsOf<int>(5), std::move(slot), std::move(options)),
                std::move(result)};
    }

    ScriptedRequests* sender;  // owned by the core
    std::shared_ptr<client::AsyncCore> core;
};

}  // namespace shared_tensor::test
