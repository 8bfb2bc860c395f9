#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "net/server/server.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "support/daemon.hpp"

namespace shared_tensor::test {

/// An OpenTelemetry collector that keeps the spans it gets. Its port is the kernel's choice.
class Collector final : private net::Handler {
public:
    using Json = json_rpc::Json;
    /// `answers`: the statuses of its first answers; later ones are 200.
    explicit Collector(std::vector<int> answers = {})
        : answers_(std::move(answers)), server_(net::ServerOptions(), *this) {
        server_.start();
    }

    std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
    std::vector<Json> requests() const {
        return received_.with([](const auto& all) { return all; });
    }
    /// All spans of requests that it answered with 200.
    std::vector<Json> spans() const {
        std::vector<Json> spans;
        for (const Json& request : requests()) {
            for (const Json& span : request["resourceSpans"][0]["scopeSpans"][0]["spans"])
                spans.push_back(span);
        }
        return spans;
    }
    /// The first span with these members, once it is there; else null.
    Json span(const Json& members) const {
        Json found;
        eventually([&] {
            for (const Json& span : spans()) {
                bool fits = true;
                for (const auto& [name, value] : members.items())
                    fits = fits && span.contains(name) && span[name] == value;
                if (fits) found = span;
            }
            return !found.is_null();
        });
        return found;
    }
    /// The value of an attribute; null without it.
    static Json attribute(const Json& span, const std::string& name) {
        for (const Json& one : span["attributes"]) {
            if (one["key"] == name) return one["value"].begin().value();
        }
        return {};
    }
    std::size_t asked() const {
        return asked_.with([](std::size_t count) { return count; });
    }
    std::string partial;  ///< the body of its answers; set it before the first request

private:
    Verdict admit(const net::RequestHead&, bool) override { return net::BodyPlan{std::size_t{16} << 20, false}; }
    net::Response handle(net::Request request, net::ResponseStream&) override {
        const std::size_t before = asked_.with([](std::size_t& count) { return count++; });
        const int status = before < answers_.size() ? answers_[before] : 200;
        if (status == 200 && request.head.path == "/v1/traces")
            received_.with([&](auto& all) { all.push_back(Json::parse(request.text())); });
        return net::Response::json(status, partial.empty() ? "{}" : partial);
    }
    net::Response rejection(int status, std::string_view reason, const net::RequestHead*) override {
        return net::Response::json(status, std::string(reason));
    }

    const std::vector<int> answers_;
    Guarded<std::vector<Json>> received_;
    Guarded<std::size_t> asked_{std::size_t{0}};
    net::Server server_;
};

}  // namespace shared_tensor::test
