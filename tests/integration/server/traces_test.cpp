// The spans that a server and C++ clients send, as a collector gets them.

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/client.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/tensors.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/collector.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr const char* kTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const Json kTraceId = "4bf92f3577b34da6a3ce929d0e0e4736", kCallerId = "00f067aa0ba902b7";

Words traced(const Collector& collector, const Words& more = {}) {
    return with_plugins(joined({"--load", SHARED_TENSOR_ROUGH_PLUGIN, "--trace-endpoint", collector.url()}, more));
}
HeaderList in_trace() { return {{"traceparent", kTrace}}; }

std::string id_in(const std::string& traceparent) { return traceparent.substr(36, 16); }

}  // namespace

TEST_CASE("each call is a span below its caller's, with the names of its log line", "[server][traces]") {
    const Collector collector;
    const Daemon daemon(traced(collector));
    const Json body = call_object("scale", {{"x", {1, 2, 3}}, {"factor", 2}}, "id 7");
    post(daemon.port(), body.dump(), {{"traceparent", kTrace}, {"X-Request-Id", "req-1"}});
    const Json span = collector.span({{"name", "scale"}});
    CHECK(span["traceId"] == kTraceId);
    CHECK(span["parentSpanId"] == kCallerId);
    CHECK(span["kind"] == 2);
    CHECK_FALSE(span.contains("status"));
    const auto attribute = [&](const char* name) { return Collector::attribute(span, name); };
    CHECK(attribute("rpc.system") == "jsonrpc");
    CHECK(attribute("rpc.method") == "scale");
    CHECK(attribute("rpc.jsonrpc.request_id") == "id 7");
    CHECK(attribute("shared_tensor.request_id") == "req-1");
    CHECK(attribute("shared_tensor.principal") == "uid:" + std::to_string(::getuid()));
    CHECK(attribute("shared_tensor.run_ms").is_number());
    CHECK(attribute("shared_tensor.queue_ms").is_number());
    const Json resource = collector.requests()[0]["resourceSpans"][0]["resource"];
    CHECK(resource["attributes"][0]["value"]["stringValue"] == "shared-tensor-server");
}

TEST_CASE("the function of a call is told its span, also in a worker process", "[server][traces]") {
    const Collector collector;
    const bool in_worker = GENERATE(false, true);
    CAPTURE(in_worker);
    const Daemon daemon(traced(collector, in_worker ? Words{"--processes", "1"} : Words{}));
    const auto told = call(daemon.port(), "traceparent", nullptr, in_trace()).get<std::string>();
    const Json span = collector.span({{"name", "traceparent"}});
    CHECK(span["parentSpanId"] == kCallerId);
    CHECK(span["spanId"] == id_in(told));
}

TEST_CASE("a failed call's span has the kind of its error", "[server][traces]") {
    const Collector collector;
    const Daemon daemon(traced(collector));
    CHECK(call_code(daemon.port(), "throw_as_torch", {3}, in_trace()) == -32000);
    const Json failed = collector.span({{"name", "throw_as_torch"}});
    CHECK(failed["status"]["code"] == 2);
    CHECK(Collector::attribute(failed, "error.type") == "function_failed");
    CHECK(Collector::attribute(failed, "rpc.jsonrpc.error_code") == "-32000");
    CHECK(call_code(daemon.port(), "no_such_function", nullptr, in_trace()) == -32601);
    CHECK(collector.span({{"name", "no_such_function"}})["parentSpanId"] == kCallerId);
}

TEST_CASE("a task has a span for task.submit, and one for its run below that", "[server][traces]") {
    const Collector collector;
    const Daemon daemon(traced(collector));
    call(daemon.port(), "task.submit", {{"method", "add"}, {"params", {1, 2}}}, in_trace());
    const Json submit = collector.span({{"name", "task.submit"}}), run = collector.span({{"name", "add"}});
    CHECK(submit["parentSpanId"] == kCallerId);
    CHECK(run["parentSpanId"] == submit["spanId"]);
    CHECK(run["traceId"] == kTraceId);
    CHECK(run["kind"] == 1);
    CHECK(Collector::attribute(run, "shared_tensor.task").get<std::string>().starts_with("t-"));
}

TEST_CASE("notifications, items of batches and calls that stream have spans", "[server][traces]") {
    const Collector collector;
    const Daemon daemon(traced(collector));
    Json notification = call_object("add", {1, 2});
    notification.erase("id");
    post(daemon.port(), notification.dump(), in_trace());
    CHECK(collector.span({{"name", "add"}})["parentSpanId"] == kCallerId);
    Json own = call_object("scale", {{"x", {1}}, {"factor", 2}});
    own["meta"] = {{"traceparent", "00-11111111111111111111111111111111-2222222222222222-01"}};
    post(daemon.port(), Json{call_object("sleep", {0}, 2), own}.dump(), in_trace());
    CHECK(collector.span({{"name", "sleep"}})["parentSpanId"] == kCallerId);
    CHECK(collector.span({{"name", "scale"}})["parentSpanId"] == "2222222222222222");
    const Client client(daemon.url());
    CallOptions options;
    options.traceparent = kTrace;
    auto stream = client.with(options).stream<std::int64_t>("count", named("up_to", 3));
    for (auto numbers = stream.reader<std::int64_t>(); numbers.next();) {  // else the function may stop early
    }
    CHECK(stream.result() == 3);
    CHECK(collector.span({{"name", "count"}})["parentSpanId"] == kCallerId);
}

TEST_CASE("files of tensors have spans", "[server][traces]") {
    const Collector collector;
    const Daemon daemon(traced(collector));
    http_request(daemon.port(), "GET", "/tensors/missing", "", in_trace());
    const Json span = collector.span({{"name", "GET /tensors"}});
    CHECK(span["parentSpanId"] == kCallerId);
    CHECK(Collector::attribute(span, "url.path") == "/tensors/missing");
    CHECK(Collector::attribute(span, "http.response.status_code") == "404");
    CHECK(Collector::attribute(span, "error.type") == "404");
}

TEST_CASE("a trace that its caller does not record has no spans, and others are counted in the metrics",
          "[server][traces]") {
    const Collector collector;
    const Daemon daemon(traced(collector));
    const std::string not_recorded = std::string(kTrace).substr(0, 53) + "00";
    call(daemon.port(), "add", {1, 2}, {{"traceparent", not_recorded}});
    CHECK(call(daemon.port(), "traceparent", nullptr, {{"traceparent", not_recorded}}) == not_recorded);
    call(daemon.port(), "sleep", {0});
    CHECK_FALSE(collector.span({{"name", "sleep"}}).contains("parentSpanId"));
    for (const Json& span : collector.spans())
        CHECK(span["name"] != "add");
    CHECK(eventually([&] {
        const std::string page = http_request(daemon.port(), "GET", "/metrics").body;
        return page.find("shared_tensor_spans_total{outcome=\"sent\"} 1\n") != std::string::npos;
    }));
}

TEST_CASE("a daemon whose collector is gone serves on, and its log says that spans are lost", "[server][traces]") {
    Daemon daemon(with_plugins({"--trace-endpoint", "http://127.0.0.1:1"}));
    CHECK(call(daemon.port(), "add", {1, 2}) == 3);
    CHECK(daemon.stop() == 0);
    CHECK(daemon.logs("spans are lost, because the collector at http://127.0.0.1:1 did not take them"));
}

TEST_CASE("a daemon with an endpoint that is no url does not start", "[server][traces]") {
    const Ended ended = run_daemon({"--port", "0", "--trace-endpoint", "collector"});
    CHECK(ended.code == 1);
    CHECK_THAT(ended.err, ContainsSubstring("such as http://127.0.0.1:4318"));
}

TEST_CASE("a client's spans are above the server's, and in a function below its call's", "[client][traces]") {
    const Collector collector;
    const Daemon daemon(traced(collector));
    ServerOptions options;
    options.port = 0;
    options.traces.endpoint = collector.url();
    options.service_name = "front";
    ClientOptions next;
    next.url = daemon.url();
    next.traces = {.endpoint = collector.url(), .service_name = "engine"};
    const Client to_next(next);
    Registry functions;
    functions.add("pass_on", [&](double a) { return to_next.call<double>("add", a, 1); });
    Server server(std::move(functions), options);
    server.start();
    CHECK(call(server.port(), "pass_on", {1}, in_trace()) == 2);
    const Json front = collector.span({{"name", "pass_on"}});
    const Json sent = collector.span({{"name", "add"}, {"kind", 3}});
    const Json back = collector.span({{"name", "add"}, {"kind", 2}});
    CHECK(front["parentSpanId"] == kCallerId);
    CHECK(sent["parentSpanId"] == front["spanId"]);
    CHECK(back["parentSpanId"] == sent["spanId"]);
    CHECK(back["traceId"] == kTraceId);
    CHECK(Collector::attribute(back, "shared_tensor.request_id") ==
          Collector::attribute(sent, "shared_tensor.request_id"));
}

TEST_CASE("a client without spans of its own passes a trace on, in each kind of call", "[client][traces]") {
    const Collector collector;
    const Daemon daemon(traced(collector));
    CallOptions options;
    options.traceparent = kTrace;
    const Client client = Client(daemon.url()).with(options);
    client.call<double>("add", 1, 2);
    CHECK(collector.span({{"name", "add"}})["parentSpanId"] == kCallerId);
    client.submit<double>("add", 1, 2).get();
    CHECK(collector.span({{"name", "task.submit"}})["parentSpanId"] == kCallerId);
    CHECK_THROWS_AS(NamedTensors(client).pull("missing"), RpcError);
    CHECK(collector.span({{"name", "GET /tensors"}})["parentSpanId"] == kCallerId);
    const AsyncClient later(AsyncOptions{.client = {.url = daemon.url()}});
    CHECK(later.with(options).call<std::string>("traceparent").get().substr(3, 32) == kTraceId.get<std::string>());
}

TEST_CASE("a traceparent that is none is rejected before anything is sent", "[client][traces]") {
    CallOptions options;
    options.traceparent = "00-1-2-01\r\nAuthorization: Bearer x";
    CHECK_THROWS_AS(
        Client("http://127.0.0.1:" + std::to_string(shared_daemon())).with(options).call<double>("add", 1, 2),
        std::invalid_argument);
}

TEST_CASE("a failed call's span of the client has the code of its error", "[client][traces]") {
    const Collector collector;
    ClientOptions options;
    options.url = "http://127.0.0.1:1";
    options.retry = no_retry();
    options.traces.endpoint = collector.url();
    {
        const Client client(options);
        CHECK_THROWS_AS(client.call<double>("add", 1, 2), TransportFailure);
    }
    const Json span = collector.span({{"name", "add"}});
    CHECK(span["status"]["code"] == 2);
    CHECK(Collector::attribute(span, "error.type").is_string());
}
