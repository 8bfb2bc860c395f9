// tensor.put, get, list, delete and watch as any JSON-RPC client sees them.

#include <catch2/catch_test_macros.hpp>

#include "file_client.hpp"
#include "integration/metrics/metrics_page.hpp"

using namespace shared_tensor::test;

namespace {

Json tensor(const Json& data) { return {{"$tensor", {{"data", data}}}}; }
Json put(int port, const std::string& name, const HeaderList& headers = {}) {
    return call(port, "tensor.put", {{"name", name}, {"tensor", tensor({1, 2})}}, headers);
}

}  // namespace

TEST_CASE("a set is got as a map of tensors, or as blocks of bytes", "[server][names]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const Json set{{"a", tensor({1.5, 2.5})}, {"b", tensor({true})}};
    CHECK(call(port, "tensor.put", {{"name", name}, {"tensors", set}})["bytes"] == 65);
    const Json tensors = call(port, "tensor.get", {{"name", name}})["tensors"];
    CHECK(tensors["a"]["$tensor"]["data"] == Json{1.5, 2.5});
    CHECK(tensors["b"]["$tensor"]["dtype"] == "bool");
    const Json blocks = call(port, "tensor.get", {{"name", name}, {"form", "blocks"}})["blocks"];
    REQUIRE(blocks.size() == 1);
    const Json& block = blocks[0];
    CHECK(block["manifest"]["a"] == Json{{"dtype", "float32"}, {"shape", {2}}, {"offset", 0}});
    CHECK(block["manifest"]["b"]["offset"] == 64);
    CHECK(block["data"]["$tensor"]["shape"] == Json{65});
    CHECK(call(port, "tensor.put",
               {{"name", name}, {"manifest", block["manifest"]}, {"data", block["data"]}})["version"] == 2);
    CHECK(call(port, "tensor.get", {{"name", name}, {"members", {"b"}}})["tensors"].size() == 1);
    CHECK(call(port, "tensor.get", {{"name", name + "/a"}})["tensor"]["$tensor"]["data"] == Json{1.5, 2.5});
}

TEST_CASE("a version that is based on another shares its blocks, which a reader may know", "[server][names]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const auto put_changes = [&](const Json& version, const Json& changes) {
        return respond(port, "tensor.put", {{"name", name}, {"base", version}, {"tensors", changes}});
    };
    const auto blocks_of = [&](const Json& more) {
        Json params{{"name", name}, {"form", "blocks"}};
        params.update(more);
        return call(port, "tensor.get", params)["blocks"];
    };
    const Json set{{"a", tensor({1, 2})}, {"b", tensor({3, 4})}, {"c", tensor({5, 6})}};
    CHECK(put_changes(1, set)["error"]["data"]["parameter"] == "base");
    CHECK(put_changes(0, set)["error"]["data"]["parameter"] == "base");
    call(port, "tensor.put", {{"name", name}, {"tensors", set}});
    const Json first = blocks_of(Json::object())[0];
    const Json made = put_changes(1, {{"b", tensor({30, 40})}, {"d", tensor({7})}})["result"];
    CHECK(made["version"] == 2);
    CHECK(made["copied"] == 72);
    CHECK(made["bytes"] == 144 + 72);
    const Json tensors = call(port, "tensor.get", {{"name", name}})["tensors"];
    CHECK(tensors.size() == 4);
    CHECK(tensors["a"]["$tensor"]["data"] == Json{1.0, 2.0});
    CHECK(tensors["b"]["$tensor"]["data"] == Json{30.0, 40.0});
    const Json second = blocks_of({{"known", {first["id"], "another"}}});
    REQUIRE(second.size() == 2);
    CHECK(second[0]["id"] == first["id"]);
    CHECK_FALSE(second[0].contains("data"));
    CHECK(second[0]["manifest"].size() == 2);
    CHECK(second[1].contains("data"));
    CHECK(second[1]["manifest"].size() == 2);
    CHECK(blocks_of({{"members", {"b"}}}).size() == 1);
    CHECK(blocks_of({{"members", {"b", "a"}}}).size() == 2);
    CHECK(call_code(port, "tensor.get", {{"name", name}, {"members", {"e"}}}) == -32602);

    for (const Json& rejected :
         {put_changes(1, set), put_changes(3, set), put_changes(0, set),
          respond(port, "tensor.put", {{"name", name}, {"base", 2}, {"if_version", 2}, {"tensors", set}}),
          respond(port, "tensor.put", {{"name", name}, {"base", 2}, {"tensor", tensor({1})}})}) {
        INFO(rejected.dump());
        CHECK(code_of(rejected) == -32602);
    }
    for (const int version : {2, 3}) {  // the texts of all versions together are bounded
        const Json texts{{"key" + std::to_string(version), std::string(140'000, 'x')}};
        const Json published = respond(
            port, "tensor.put", {{"name", name}, {"base", version}, {"tensors", Json::object()}, {"metadata", texts}});
        CHECK(code_of(published) == (version == 2 ? 0 : -32602));
        if (version == 3) CHECK(published["error"]["data"]["parameter"] == "metadata");
    }
    const Json other = respond(port, "tensor.put", {{"name", name}, {"base", 7}, {"tensors", set}})["error"]["data"];
    CHECK(other["parameter"] == "base");
    CHECK(other["version"] == 3);
    const std::string single = fresh_name();
    put(port, single);
    CHECK(call_code(port, "tensor.put", {{"name", single}, {"base", 1}, {"tensors", set}}) == -32602);
    CHECK(call(port, "tensor.get", {{"name", name}})["version"] == 3);
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
        {{"name", name}, {"tensor", one}, {"version", 0}},
        {{"name", name}, {"tensor", one}, {"version", 9'007'199'254'740'993}},
        {{"name", name}, {"tensor", one}, {"metadata", {{"a", 1}}}},
        {{"name", name}, {"tensor", one}, {"metadata", {{"a", std::string(270'000, 'x')}}}},
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
    const Json one_more{{"name", "c"}, {"base", 1}, {"tensors", {{"m0", tensor({1})}}}};
    CHECK(call_code(daemon.port(), "tensor.put", one_more) == -32602);
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
    // Two are in the middle of a request: this one and the one that asks.
    REQUIRE(eventually([&] { return metrics_of(daemon.port())["connections{state=\"active\"}"] == 2; }));
    daemon.child().signal(SIGTERM);
    CHECK(code_of(waiting.response()) == -32009);
    CHECK(daemon.child().wait() == 0);
}
