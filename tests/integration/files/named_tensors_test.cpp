// tensor.put, get, list, delete and watch as any JSON-RPC client sees them.

#include <catch2/catch_test_macros.hpp>

#include "file_client.hpp"

using namespace shared_tensor::test;

namespace {

Json tensor(const Json& data) { return {{"$tensor", {{"data", data}}}}; }
Json put(int port, const std::string& name, const HeaderList& headers = {}) {
    return call(port, "tensor.put", {{"name", name}, {"tensor", tensor({1, 2})}}, headers);
}

}  // namespace

TEST_CASE("a set is got as a map of tensors, or as a manifest with all bytes", "[server][names]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const Json set{{"a", tensor({1.5, 2.5})}, {"b", tensor({true})}};
    CHECK(call(port, "tensor.put", {{"name", name}, {"tensors", set}})["bytes"] == 65);
    const Json tensors = call(port, "tensor.get", {{"name", name}})["tensors"];
    CHECK(tensors["a"]["$tensor"]["data"] == Json{1.5, 2.5});
    CHECK(tensors["b"]["$tensor"]["dtype"] == "bool");
    const Json manifest = call(port, "tensor.get", {{"name", name}, {"form", "manifest"}});
    CHECK(manifest["manifest"]["a"] == Json{{"dtype", "float32"}, {"shape", {2}}, {"offset", 0}});
    CHECK(manifest["manifest"]["b"]["offset"] == 64);
    CHECK(manifest["data"]["$tensor"]["shape"] == Json{65});
    CHECK(call(port, "tensor.put",
               {{"name", name}, {"manifest", manifest["manifest"]}, {"data", manifest["data"]}})["version"] == 2);
    CHECK(call(port, "tensor.get", {{"name", name}, {"members", {"b"}}})["tensors"].size() == 1);
    CHECK(call(port, "tensor.get", {{"name", name + "/a"}})["tensor"]["$tensor"]["data"] == Json{1.5, 2.5});
}

TEST_CASE("what cannot be published is rejected, and nothing is left of it", "[server][names]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const Json one = tensor({1, 2});
    const Json bytes{{"$tensor", {{"dtype", "uint8"}, {"data", {1, 2, 3, 4}}}}};
    const Json member{{"dtype", "float32"}, {"shape", {1}}, {"offset", 0}};
    const std::vector<Json> bad{
        {{"name", name}},
        {{"tensor", one}},
        {{"name", 5}, {"tensor", one}},
        {{"name", name}, {"tensor", one}, {"tensors", Json::object()}},
        {{"name", name}, {"tensor", {1, 2}}},
        {{"name", name}, {"tensor", {{"$tensor", {{"dtype", "float3"}}}}}},
        {{"name", name}, {"tensors", {1, 2}}},
        {{"name", name}, {"tensors", {{"a", 5}}}},
        {{"name", name}, {"tensors", {{"__metadata__", one}}}},
        {{"name", name}, {"tensors", {{"", one}}}},
        {{"name", name}, {"manifest", {{"a", member}}}},
        {{"name", name}, {"data", bytes}},
        {{"name", name}, {"manifest", {{"a", member}}}, {"data", one}},
        {{"name", name}, {"manifest", {{"a", member}, {"b", member}}}, {"data", bytes}},
        {{"name", name}, {"manifest", {{"a", {{"dtype", "bool"}, {"shape", {4}}, {"offset", 0}}}}}, {"data", bytes}},
        {{"name", name}, {"tensor", one}, {"if_version", -1}},
        {{"name", name}, {"tensor", one}, {"if_version", 3}},
        {{"name", name}, {"tensor", one}, {"metadata", {{"a", 1}}}},
        {{"name", name}, {"tensor", one}, {"metadata", {{"a", std::string(70'000, 'x')}}}},
        {{"name", name}, {"tensor", one}, {"more", 1}},
        {{"name", "l-" + name}, {"tensor", one}},
        {{"name", name + ".npy"}, {"tensor", one}},
        {{"name", name + "/a"}, {"tensor", one}},
    };
    for (const Json& params : bad) {
        INFO(params.dump().substr(0, 300));
        CHECK(call_code(port, "tensor.put", params) == -32602);
    }
    CHECK(call_code(port, "tensor.get", {{"name", name}}) == -32005);
    CHECK(put(port, name)["version"].is_number());
    CHECK(call_code(port, "tensor.delete", {{"name", name}, {"if_version", 77}}) == -32602);
    CHECK(call_code(port, "tensor.get", {{"name", name}, {"form", "pickle"}}) == -32602);
    CHECK(call_code(port, "tensor.get", {{"name", name}, {"members", {"a"}}}) == -32602);
}

TEST_CASE("a key does not make a name be published or deleted once, so it is rejected", "[server][names]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const Json version = put(port, name)["version"];
    const HeaderList key{{"Idempotency-Key", name}};
    const Json rejected = respond(port, "tensor.put", {{"name", name}, {"tensor", tensor({1, 2})}}, key)["error"];
    CHECK(rejected["code"] == -32602);
    CHECK(rejected["data"]["parameter"] == "idempotency_key");
    CHECK(call_code(port, "tensor.delete", {{"name", name}}, key) == -32602);
    CHECK(call(port, "tensor.get", {{"name", name}}, key)["version"] == version);
}

TEST_CASE("named tensors belong to a principal, and admins see them all", "[server][names]") {
    const DaemonOfUsers daemon;
    const int port = daemon.port();
    put(port, "x", as("ann"));
    const Json hers{{"name", "x"}, {"owner", "token:ann"}};
    for (const char* method : {"tensor.get", "tensor.delete"}) {
        CHECK(call_code(port, method, {{"name", "x"}}, as("bob")) == -32005);
        CHECK(call_code(port, method, hers, as("bob")) == -32005);
    }
    CHECK(call_code(port, "tensor.watch", {{"name", "x"}, {"owner", "token:ann"}, {"after_version", 1}}, as("bob")) ==
          -32005);
    CHECK(call(port, "tensor.list", Json::object(), as("bob"))["tensors"].empty());
    CHECK(call_code(port, "tensor.get", {{"name", "x"}}, as("root")) == -32005);
    CHECK(call(port, "tensor.get", hers, as("root"))["version"] == 1);
    CHECK(call(port, "tensor.get", hers, as("ann"))["version"] == 1);
    CHECK(put(port, "x", as("bob"))["version"] == 1);
    CHECK(call(port, "tensor.list", Json::object(), as("root"))["tensors"].size() == 2);
    CHECK(call(port, "tensor.delete", hers, as("root"))["version"] == 1);
    CHECK(call_code(port, "tensor.get", {{"name", "x"}}, as("ann")) == -32005);
}

TEST_CASE("names, their bytes and the members of a set are bounded", "[server][names]") {
    struct Row {
        const char* option;
        const char* limit;
        int fit;             // names of two numbers
        std::size_t beyond;  // numbers that no longer fit
    };
    for (const Row& row : {Row{"--max-named-tensors", "2", 2, 1}, Row{"--max-named-bytes", "1000", 1, 300},
                           Row{"--max-shared-bytes", "4096", 0, 3000}}) {
        INFO(row.option);
        const Daemon daemon({row.option, row.limit});
        for (int i = 0; i < row.fit; ++i)
            put(daemon.port(), "n" + std::to_string(i));
        const Json rejected =
            respond(daemon.port(), "tensor.put", {{"name", "c"}, {"tensor", tensor(std::vector(row.beyond, 1.0))}});
        CHECK(code_of(rejected) == -32008);
        CHECK(rejected["error"]["data"]["detail"].get<std::string>().find(row.option) != std::string::npos);
        if (row.fit > 0) CHECK(put(daemon.port(), "n0")["version"] == 2);
    }
    const Daemon daemon;
    Json set;
    for (int i = 0; i < 100'001; ++i)
        set["m" + std::to_string(i)] = tensor({1});
    CHECK(call_code(daemon.port(), "tensor.put", {{"name", "c"}, {"tensors", set}}) == -32602);
    set.erase("m0");
    CHECK(call_code(daemon.port(), "tensor.put", {{"name", "c"}, {"tensors", set}}) == 0);
}

TEST_CASE("those who wait for a name hold no worker", "[server][names]") {
    const Daemon daemon(with_plugins({"--workers", "1"}));
    const std::string name = fresh_name();
    std::vector<std::unique_ptr<PendingCall>> waiting;
    for (int i = 0; i < 8; ++i)
        waiting.push_back(std::make_unique<PendingCall>(daemon.port(), "tensor.watch", Json{{"name", name}}));
    CHECK(call(daemon.port(), "sleep", {0.01}).is_number());
    put(daemon.port(), name);
    for (const auto& one : waiting)
        CHECK(one->response()["result"] == Json{{"name", name}, {"version", 1}, {"changed", true}});
}

TEST_CASE("a wait for a name is bounded, and ends with its client or its daemon", "[server][names]") {
    const Daemon bounded({"--max-wait", "20ms"});
    CHECK(call(bounded.port(), "tensor.watch", {{"name", "x"}}) ==
          Json{{"name", "x"}, {"version", 0}, {"changed", false}});
    Daemon daemon({"--max-wait", "10m"});
    const auto connections = [&] { return call(daemon.port(), "server.info")["totals"]["connections"].get<int>(); };
    PendingCall gone(daemon.port(), "tensor.watch", {{"name", "x"}});
    REQUIRE(eventually([&] { return connections() == 2; }));
    gone.hang_up();
    CHECK(eventually([&] { return connections() == 1; }));
    PendingCall waiting(daemon.port(), "tensor.watch", {{"name", "x"}});
    REQUIRE(eventually([&] { return connections() == 2; }));
    daemon.child().signal(SIGTERM);
    CHECK(code_of(waiting.response()) == -32009);
    CHECK(daemon.child().wait() == 0);
}
