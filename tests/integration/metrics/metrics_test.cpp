// What /metrics counts, and who may read it.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/simulated.hpp>
#include <shared_tensor/tensors.hpp>

#include "integration/metrics/metrics_page.hpp"
#include "support/web_socket_peer.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kMe = "uid:" + std::to_string(::getuid());

/// Sends a notification.
void notify(const Calls& daemon, const std::string& method, const Json& params) {
    CHECK(daemon.post(Json{{"jsonrpc", "2.0"}, {"method", method}, {"params", params}}.dump()).status == 204);
}

double rejections(int port, const std::string& reason, const HeaderList& headers = {}) {
    return metrics_of(port, headers)["rejections_total{reason=\"" + reason + "\"}"];
}

}  // namespace

TEST_CASE("calls are counted by function and outcome", "[metrics]") {
    const OwnDaemon daemon({"--workers", "1", "--queue", "1"});
    const int port = daemon.port();
    CHECK(metrics_of(port).calls("add", "ok") == 0);  // so that the first call is an increase
    for (int i = 0; i < 3; ++i)
        daemon.call("add", {1, i});
    CHECK(daemon.code("add", {1, "two"}) == -32602);
    CHECK(daemon.code("add", {1}) == -32602);
    CHECK(daemon.code("fail", {"no"}) == -32000);
    CHECK(daemon.code("throw_bad_alloc") == -32008);
    CHECK(daemon.code("hold_briefly", {daemon.name}) == -32002);
    CHECK(daemon.code("hold_task", {daemon.name}) == -32600);

    const MetricsPage page = metrics_of(port);
    CHECK(page.calls("add", "ok") == 3);
    CHECK(page.calls("add", "invalid_params") == 2);
    CHECK(page.calls("add", "function_failed") == 0);
    CHECK(page.calls("fail", "function_failed") == 1);
    CHECK(page.calls("throw_bad_alloc", "out_of_memory") == 1);
    CHECK(page.calls("hold_briefly", "deadline_exceeded") == 1);
    CHECK(page.calls("hold_task", "invalid_request") == 1);
    CHECK(page.calls("rpc.discover", "ok") == -1);  // methods of the server are there once they were called
    daemon.call("rpc.discover");
    CHECK(metrics_of(port).calls("rpc.discover", "ok") == 1);
}

TEST_CASE("a call that found the queue full, and one whose client left, are counted", "[metrics]") {
    const OwnDaemon daemon({"--workers", "1", "--queue", "1"});
    PendingCall running = daemon.hold(), waiting = daemon.hold();
    REQUIRE(daemon.until("running"));
    REQUIRE(eventually([&] { return metrics_of(daemon.port())["queue_depth"] == 1; }));
    CHECK(daemon.code("hold", {daemon.name}) == -32001);
    const MetricsPage page = metrics_of(daemon.port());
    CHECK(page.calls("hold", "busy") == 1);
    CHECK(page["queue_rejections_total"] == 1);
    CHECK(page["queue_limit"] == 1);
    CHECK(page["workers"] == 1);
    CHECK(page["workers_busy"] == 1);
    waiting.hang_up();
    CHECK(eventually([&] { return metrics_of(daemon.port()).calls("hold", "cancelled") == 1; }));
    daemon.release();
    CHECK(code_of(running.response()) == 0);
    CHECK(metrics_of(daemon.port()).calls("hold", "ok") == 1);
    CHECK(eventually([&] { return metrics_of(daemon.port())["workers_busy"] == 0; }));
}

TEST_CASE("notifications, items of batches and calls that stream are counted", "[metrics]") {
    const OwnDaemon daemon;
    const int port = daemon.port();
    notify(daemon, "echo", {1});
    notify(daemon, "fail", {"no"});
    notify(daemon, "add", {1});
    notify(daemon, "server.ping", Json::array());
    CHECK(eventually([&] { return metrics_of(port).calls("fail", "function_failed") == 1; }));
    CHECK(eventually([&] { return metrics_of(port).calls("echo", "ok") == 1; }));
    CHECK(metrics_of(port).calls("add", "invalid_params") == 1);
    CHECK(metrics_of(port).calls("server.ping", "ok") == 1);

    const Json reference{{"$ref", {{"item", 9}}}};
    daemon.post(Json::array({call_object("add", {1, 2}), call_object("echo", {1}, 2), call_object("fail", {"x"}, 9),
                             call_object("echo", reference, 4)})
                    .dump());
    const MetricsPage page = metrics_of(port);
    CHECK(page.calls("add", "ok") == 1);
    CHECK(page.calls("echo", "ok") == 2);
    CHECK(page.calls("fail", "function_failed") == 2);
    CHECK(page.calls("echo", "input_failed") == 1);

    http_request(port, "POST", "/jsonrpc", call_object("count", {{"up_to", 2}}).dump(),
                 {{"Accept", "text/event-stream"}});
    http_request(port, "POST", "/jsonrpc", call_object("count", {{"up_to", "x"}}).dump(),
                 {{"Accept", "text/event-stream"}});
    WebSocketPeer socket(port);
    socket.send(call_object("add", {1, 2}));
    CHECK(socket.read()["result"] == 3.0);
    CHECK(eventually([&] { return metrics_of(port).calls("count", "ok") == 1; }));
    CHECK(metrics_of(port).calls("count", "invalid_params") == 1);
    CHECK(metrics_of(port).calls("add", "ok") == 2);
    CHECK(metrics_of(port)["web_sockets"] == 1);
}

TEST_CASE("durations are counted: of each run, and of each answer", "[metrics]") {
    const OwnDaemon daemon({"--workers", "3"});
    std::vector<PendingCall> calls;
    for (int i = 0; i < 3; ++i)
        calls.emplace_back(daemon.port(), "sleep", Json::array({1.0}));
    for (PendingCall& one : calls)
        CHECK(one.response().contains("result"));
    daemon.code("sleep", {"x"});  // never runs, but is answered
    const MetricsPage page = metrics_of(daemon.port());
    for (const char* phase : {"queue", "run"})
        CHECK(page["call_" + std::string(phase) + "_seconds_count{function=\"sleep\"}"] == 3);
    CHECK(page["call_serialise_seconds_count{function=\"sleep\"}"] == 4);
    CHECK(page["call_seconds_count{function=\"sleep\"}"] == 4);
    for (const char* of : {"call_run_seconds", "call_seconds"}) {
        const double sum = page[std::string(of) + "_sum{function=\"sleep\"}"];
        CHECK(sum >= 3);
        CHECK(sum < 30);
        CHECK(page[std::string(of) + "_bucket{function=\"sleep\",le=\"+Inf\"}"] >= 3);
    }
    CHECK(page["call_run_seconds_bucket{function=\"sleep\",le=\"0.033554432\"}"] == 0);
    CHECK(page["call_serialise_seconds_sum{function=\"sleep\"}"] < 3);
    CHECK(page["call_queue_seconds_sum{function=\"sleep\"}"] >= 0);
    CHECK_FALSE(page.has("call_seconds_count{function=\"hold\"}"));  // it was never called
}

TEST_CASE("tasks are counted by state, and as calls when they end", "[metrics]") {
    const OwnDaemon daemon({"--workers", "2"});  // one of them for tasks
    const auto state = [&](const char* name) {
        return metrics_of(daemon.port())["tasks{state=\"" + std::string(name) + "\"}"];
    };
    const Json running = daemon.submit("hold", {daemon.name}), pending = daemon.submit("hold", {daemon.name});
    REQUIRE(daemon.until("running"));
    CHECK(state("running") == 1);
    CHECK(state("pending") == 1);
    daemon.call("task.cancel", {{"id", pending}});
    CHECK(state("cancelled") == 1);
    daemon.release();
    daemon.wait(running);
    daemon.wait(daemon.submit("fail", {"no"}));
    CHECK(state("completed") == 1);
    CHECK(state("failed") == 1);
    CHECK(state("running") == 0);
    CHECK(daemon.code("task.submit", {{"method", "add"}, {"params", {1}}}) == -32602);
    const Json late = daemon.submit("sleep", {30}, {{"deadline_ms", 1}});
    daemon.wait(late);
    MetricsPage page = metrics_of(daemon.port());
    const auto all_are_counted = [&] {
        page = metrics_of(daemon.port());
        return page.calls("hold", "ok") == 1 && page.calls("hold", "cancelled") == 1 &&
               page.calls("fail", "function_failed") == 1 && page.calls("add", "invalid_params") == 1 &&
               page.calls("sleep", "deadline_exceeded") == 1;
    };
    (void)eventually(all_are_counted);
    CHECK(page.calls("sleep", "deadline_exceeded") == 1);
    CHECK(page.calls("hold", "ok") == 1);
    CHECK(page.calls("hold", "cancelled") == 1);
    CHECK(page.calls("fail", "function_failed") == 1);
    CHECK(page.calls("add", "invalid_params") == 1);
    CHECK(page.calls("sleep", "cancelled") == 0);
    CHECK(page["call_run_seconds_count{function=\"fail\"}"] == 1);
}

TEST_CASE("cache hits and misses are counted, and a hit is a call", "[metrics]") {
    const OwnDaemon daemon;
    daemon.release();
    for (int i = 0; i < 3; ++i)
        daemon.call("hold_cached", {daemon.name});
    const MetricsPage page = metrics_of(daemon.port());
    CHECK(page["cache_hits_total"] == 2);
    CHECK(page["cache_misses_total"] == 1);
    CHECK(page["cache_entries"] == 1);
    CHECK(page["cache_bytes"] > 0);
    CHECK(page.calls("hold_cached", "ok") == 3);
    CHECK(page["call_run_seconds_count{function=\"hold_cached\"}"] == 1);
}

TEST_CASE("leases, segments and channels of another process are counted, and go with it", "[metrics]") {
    const OwnDaemon daemon;
    const int port = daemon.port();
    const std::string mine = "{client=\"" + kMe + "\",device=\"cpu\"}";
    CHECK(metrics_of(port)["leases"] == 0);
    {
        const Client client(daemon.url());
        const auto held = client.call<TensorRef>("ramp", 1 << 16);
        const std::vector<float> numbers(1 << 16);
        client.call<TensorRef>("scale", TensorRef(const_cast<float*>(numbers.data()), DType::float32, {1 << 16}), 1.0);
        const MetricsPage page = metrics_of(port);
        CHECK(page["leases" + mine] >= 1);
        CHECK(page["lease_bytes" + mine] >= 4 << 16);
        CHECK(page["leases_granted_total"] == 2);
        CHECK(page["local_channels"] == 1);
        CHECK(page["segments{state=\"exported\"}"] >= 1);
        CHECK(page["segment_bytes{state=\"exported\"}"] >= 4 << 16);
        CHECK(page["segments{state=\"offered\"}"] >= 1);
        CHECK(page["segments{state=\"mapped\"}"] >= 1);
        CHECK(page["transport_tensors_total{transport=\"shm\"}"] == 3);
        CHECK(page["transport_bytes_total{transport=\"shm\"}"] == 3 * (4 << 16));
        CHECK(page["transport_copied_bytes_total{transport=\"shm\"}"] > 0);
    }
    CHECK(eventually([&] {
        const MetricsPage page = metrics_of(port);
        return page["leases"] == 0 && page["lease_bytes"] == 0 && page["local_channels"] == 0 &&
               page["segments{state=\"offered\"}"] == 0 && page["segments{state=\"mapped\"}"] == 0;
    }));
}

TEST_CASE("leases of device memory are counted by device", "[metrics][simulated]") {
    simulated::enable(1);
    const Daemon daemon({"--load", kSimulatedPlugin}, {"SHARED_TENSOR_SIMULATED_DEVICES=2"});
    const int port = daemon.port();
    const std::string device = "device=\"cuda:" + simulated::uuid(0) + "\"}";
    const Client client(daemon.url());
    std::vector<float> numbers(4'000);
    {
        const auto held =
            client.call<TensorRef>("simulated.to_device", TensorRef(numbers.data(), DType::float32, {4'000}));
        const MetricsPage page = metrics_of(port);
        CHECK(page["leases{client=\"" + kMe + "\"," + device] == 1);
        CHECK(page["lease_bytes{client=\"" + kMe + "\"," + device] == 16'000);
        CHECK(page["transport_bytes_total{transport=\"cuda_ipc\"}"] == 16'000);
        CHECK(page["device_memory_bytes{" + device] > 0);
        CHECK(page.has("device_memory_bytes{device=\"cuda:" + simulated::uuid(1) + "\"}"));
    }
    CHECK(eventually([&] { return metrics_of(port)["leases"] == 0; }));
    CHECK(metrics_of(port)["device_deferred_free_blocks"] == 0);
}

TEST_CASE("bytes in messages, connections and named tensors are counted", "[metrics]") {
    const OwnDaemon daemon;
    const int port = daemon.port();
    const Json tensor{{"$tensor", {{"dtype", "float32"}, {"data", {1, 2, 3}}}}};
    daemon.call("scale", {{"x", tensor}});
    daemon.call("tensor.put", {{"name", "weights"}, {"tensor", tensor}});
    const HttpPeer idle(port), other(port);
    CHECK(eventually([&] { return metrics_of(port)["connections{state=\"parked\"}"] == 2; }));
    const MetricsPage page = metrics_of(port);
    CHECK(page["transport_tensors_total{transport=\"data\"}"] >= 2);
    CHECK(page["transport_bytes_total{transport=\"data\"}"] >= 24);
    CHECK(page["named_tensors"] == 1);
    CHECK(page["named_tensor_bytes"] == 12);
    CHECK(page["named_tensors_published_total"] == 1);
    CHECK(page["connections{state=\"active\"}"] >= 1);  // this one
    CHECK(page["connections_total"] >= 5);
    CHECK(page["http_requests_total"] >= 4);
    CHECK(page["http_received_bytes_total"] > 100);
    CHECK(page["http_sent_bytes_total"] > 100);
    CHECK(page["ready"] == 1);
    daemon.call("tensor.delete", {{"name", "weights"}});
    CHECK(metrics_of(port)["named_tensors"] == 0);
}

TEST_CASE("rejected requests are counted by reason", "[metrics]") {
    const OwnDaemon daemon({"--max-json-bytes", "1000"});
    const int port = daemon.port();
    struct Case {
        const char *reason, *method, *path;
        std::string body;
        HeaderList headers;
    };
    for (const Case& one : std::initializer_list<Case>{
             {"host", "GET", "/healthz", "", {{"Host", "evil.example"}}},
             {"origin", "GET", "/metrics", "", {{"Origin", "http://evil.example"}}},
             {"path", "GET", "/secret/of/somebody", "", {}},
             {"http_method", "DELETE", "/metrics", "", {}},
             {"content_type", "POST", "/jsonrpc", "{}", {{"Content-Type", "text/plain"}}},
             {"too_large", "POST", "/jsonrpc", std::string(2000, ' '), {}},
             {"malformed", "GET", "/healthz", "", {{"Content-Length", "x"}}},
             {"parse_error", "POST", "/jsonrpc", "{", {}},
             {"invalid_request", "POST", "/jsonrpc", "[]", {}},
             {"unknown_method", "POST", "/jsonrpc", call_object("who\"knows\n", {1}).dump(), {}},
         }) {
        INFO(one.reason);
        const double before = rejections(port, one.reason);
        http_request(port, one.method, one.path, one.body, one.headers);
        CHECK(rejections(port, one.reason) == before + 1);
    }
    const std::string text = http_request(port, "GET", "/metrics").body;
    for (const char* said : {"secret", "evil", "knows"})
        CHECK(text.find(said) == std::string::npos);
}

TEST_CASE("a missing token, a method that a token does not allow and a full second are counted", "[metrics]") {
    const TokenDaemon daemon(token("some", ":allow=add,server.*") + token("boss", ":admin"),
                             {"--max-client-requests", "2"});
    const int port = daemon.port();
    CHECK(daemon.post(call_object("add", {1, 2}).dump()).status == 401);
    CHECK(daemon.code("echo", {1}, bearer('s')) == -32007);
    std::this_thread::sleep_for(std::chrono::milliseconds(1'100));
    daemon.post(Json::array({call_object("add", {1, 2}), call_object("echo", {1})}).dump(), bearer('s'));
    CHECK(eventually([&] { return daemon.post(call_object("add", {1, 2}).dump(), bearer('s')).status == 429; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // the admin's own limit
    const MetricsPage page = metrics_of(port, bearer('b'));
    CHECK(page["rejections_total{reason=\"token\"}"] == 1);
    CHECK(page["rejections_total{reason=\"rate\"}"] >= 1);
    CHECK(page.calls("echo", "not_authorised") == 2);
}

TEST_CASE("functions beyond --max-metric-values share a label", "[metrics]") {
    const OwnDaemon daemon({"--max-metric-values", "3"});
    for (int i = 0; i < 5; ++i)
        daemon.call("get_data");
    daemon.call("add", {1, 2});
    std::set<std::string> functions;
    double calls = 0;
    const MetricsPage page = metrics_of(daemon.port());
    for (const auto& [series, value] : page.samples()) {
        const std::string begin = "shared_tensor_calls_total{function=\"";
        if (!series.starts_with(begin) || series.find("outcome=\"ok\"") == std::string::npos) continue;
        functions.insert(series.substr(begin.size(), series.find('"', begin.size()) - begin.size()));
        calls += value;
    }
    CHECK(functions.size() == 4);
    CHECK(functions.contains("(other)"));
    CHECK(calls == 6);
}

TEST_CASE("the main port serves metrics under its own rules", "[metrics]") {
    const int port = shared_daemon();
    const HttpReply page = http_request(port, "GET", "/metrics");
    CHECK(page.status == 200);
    CHECK(page.header("Content-Type") == "text/plain; version=0.0.4; charset=utf-8");
    CHECK_THAT(page.body, ContainsSubstring("# TYPE shared_tensor_calls_total counter\n"));
    CHECK(http_request(port, "HEAD", "/metrics").status == 200);
    CHECK(http_request(port, "POST", "/metrics").status == 405);
    CHECK(http_request(port, "GET", "/metrics", {}, {{"Host", "evil.example"}}).status == 403);
    CHECK(http_request(port, "GET", "/metrics", {}, {{"Origin", "http://evil.example"}}).status == 403);
}

TEST_CASE("metrics name clients, so only admins and tokens that are made for it may read them", "[metrics]") {
    const TokenDaemon daemon(token("all") + token("some", ":allow=add,server.*") + token("metrics", ":allow=metrics") +
                             token("boss", ":admin") + token("every", ":allow=*"));
    const auto status = [&](const HeaderList& headers) {
        return http_request(daemon.port(), "GET", "/metrics", {}, headers).status;
    };
    CHECK(status({}) == 401);
    CHECK(status(bearer('x')) == 401);
    CHECK(status(bearer('a')) == 403);
    CHECK(status(bearer('s')) == 403);
    CHECK(status(bearer('m')) == 200);
    CHECK(status(bearer('b')) == 200);
    CHECK(status(bearer('e')) == 200);
    CHECK(daemon.code("add", {1, 2}, bearer('m')) == -32007);
}
