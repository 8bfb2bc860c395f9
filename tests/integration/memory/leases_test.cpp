#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <vector>

#include <shared_tensor/json.hpp>

#include "integration/cli/run_client.hpp"
#include "integration/client/example_daemon.hpp"
#include "integration/memory/raw_channel.hpp"
#include "integration/server/shared_daemon.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

Json leases_of(int port) { return call(port, "lease.list")["leases"]; }

std::string lend(int port, const std::string& session) {
    return call(port, "ramp", {100}, by_memory(session))["$tensor"]["lease"];
}

}  // namespace

TEST_CASE("lease.list tells who holds what", "[memory][leases]") {
    const ExampleDaemon server;
    const int port = server.daemon.port();
    CHECK(leases_of(port) == Json::array());
    const Client client = server.client();
    const auto held = client.call<TensorRef>("ramp", 1 << 16);
    const Json lease = leases_of(port).at(0);
    CHECK(lease["id"].get<std::string>().starts_with("l-"));
    CHECK(lease["transport"] == "shm");
    CHECK(lease["bytes"] == 4 << 16);
    CHECK(lease["pid"] == ::getpid());
    CHECK(lease["owner"] == "uid:" + std::to_string(::getuid()));
    CHECK(lease["mine"] == false);
    CHECK(eventually([&] { return leases_of(port).at(0)["confirmed"] == true; }));
    CHECK_FALSE(leases_of(port).at(0).contains("expires_in_ms"));
    CHECK(client.call<Json>("lease.list")["leases"][0]["mine"] == true);
}

TEST_CASE("lease.list comes in pages", "[memory][leases]") {
    const ExampleDaemon server;
    const int port = server.daemon.port();
    RawChannel channel(port);
    const std::string session = channel.open();
    std::set<std::string> lent, listed;
    for (int i = 0; i < 7; ++i)
        lent.insert(lend(port, session));
    Json page = call(port, "lease.list", {{"limit", 3}});
    for (int pages = 1;; ++pages) {
        for (const Json& lease : page["leases"])
            listed.insert(lease["id"].get<std::string>());
        if (!page.contains("next_cursor")) {
            CHECK(pages == 3);
            break;
        }
        page = call(port, "lease.list", {{"limit", 3}, {"cursor", page["next_cursor"]}});
    }
    CHECK(listed == lent);
    CHECK(call_code(port, "lease.list", {{"limit", 0}}) == -32602);
    CHECK(call_code(port, "lease.list", {{"limit", 1001}}) == -32602);
}

TEST_CASE("A lease is provisional until it is confirmed, and released once", "[memory][leases]") {
    const ExampleDaemon server;
    const int port = server.daemon.port();
    RawChannel channel(port);
    const std::string session = channel.open(), lease = lend(port, session);
    const HeaderList headers{{"Shared-Tensor-Session", session}};
    CHECK(leases_of(port)[0]["confirmed"] == false);
    CHECK(leases_of(port)[0]["expires_in_ms"].get<int>() > 50'000);
    CHECK(call(port, "lease.renew", {{"leases", {lease, "l-none"}}}, headers) ==
          Json{{"leases", 1}, {"unknown", {"l-none"}}});
    CHECK(leases_of(port)[0]["confirmed"] == true);
    CHECK(call_code(port, "lease.release", {{"leases", {lease}}}) == -32005);  // without the session: not its holder
    CHECK(call(port, "lease.release", {{"leases", {lease}}}, headers) == Json{{"leases", 1}});
    CHECK(leases_of(port) == Json::array());
    const Json gone = respond(port, "lease.release", {{"leases", {lease}}}, headers)["error"];
    CHECK(gone["code"] == -32005);
    CHECK(gone["data"]["kind"] == "lease");
    CHECK(call_code(port, "lease.renew", {{"leases", {lease}}}, headers) == -32005);
    CHECK(call(port, "lease.release", {{"leases", Json::array()}}, headers) == Json{{"leases", 0}});
    CHECK(call_code(port, "lease.release", {{"leases", "x"}}, headers) == -32602);
    CHECK(call_code(port, "lease.release", {{"leases", {1}}}, headers) == -32602);
    CHECK(call_code(port, "lease.release", nullptr, headers) == -32602);
}

TEST_CASE("lease.get hands a leased tensor over once more, in another way", "[memory][leases]") {
    const ExampleDaemon server;
    const int port = server.daemon.port();
    RawChannel channel(port);
    const std::string lease = lend(port, channel.open());
    const Json again = call(port, "lease.get", {{"lease", lease}}, {{"Shared-Tensor-Accept", "data"}})["$tensor"];
    CHECK(again["shape"] == Json({100}));
    CHECK(again["data"][99] == 99.0);
    CHECK_FALSE(again.contains("lease"));
    CHECK(leases_of(port).size() == 1);
    CHECK(respond(port, "lease.get", {{"lease", "l-none"}})["error"]["data"]["kind"] == "lease");
    CHECK(call_code(port, "lease.get", Json::object()) == -32602);
    channel.ask("lease.release", {{"leases", {lease}}});
    CHECK(call_code(port, "lease.get", {{"lease", lease}}) == -32005);
}

TEST_CASE("Memory of a revoked lease stays as it is until its reader lets it go, and is used again then",
          "[memory][leases]") {
    const ExampleDaemon server;
    const int port = server.daemon.port();
    const Client client = server.client();
    auto revoked = client.call<TensorRef>("scale", arange<float>({1 << 16}), 2.0);
    const std::string lease = leases_of(port)[0]["id"];
    CHECK(call(port, "lease.revoke", {{"leases", {lease}}}) == Json{{"leases", 1}});
    CHECK(call_code(port, "lease.revoke", {{"leases", {lease}}}) == -32005);
    const auto memory = [&] { return call(port, "server.info")["totals"]["shared_memory"]; };
    CHECK(eventually([&] {
        const Json now = memory();
        return now["segments"] == 0 && now["idle_segments"] == 1;
    }));
    std::vector<TensorRef> later;
    const auto takes_all = [&] {
        later.push_back(client.call<TensorRef>("ramp", 1 << 16));
        return memory()["idle_segments"] == 0;
    };
    CHECK_FALSE(takes_all());
    CHECK(identical(later.front(), arange<float>({1 << 16})));
    CHECK(elements_of<float>(revoked)[1] == 2);
    revoked = {};
    CHECK(eventually(takes_all));
}

TEST_CASE("Leases are seen and revoked by their principal only, and by admins", "[memory][leases]") {
    const TokenDaemon server(token("alice") + token("bob") + token("root", ":admin"));
    const int port = server.port();
    const auto as = [](const std::string& name) { return bearer(name[0]); };
    ClientOptions options;
    options.url = server.url();
    options.token = secret_of('a');
    const Client alice(options);
    const auto held = alice.call<TensorRef>("held_ramp", 1 << 16);
    CHECK(call(port, "lease.list", nullptr, as("alice"))["leases"].size() == 1);
    CHECK(call(port, "lease.list", nullptr, as("bob"))["leases"].empty());
    const Json seen = call(port, "lease.list", nullptr, as("root"))["leases"];
    REQUIRE(seen.size() == 1);
    CHECK(seen[0]["owner"] == "token:alice");
    const Json ids{{"leases", {seen[0]["id"]}}};
    CHECK(call_code(port, "lease.revoke", ids, as("bob")) == -32005);
    CHECK(call(port, "lease.revoke", ids, as("root"))["leases"] == 1);

    // Memory that is alice's is not mapped by bob: he gets a copy.
    options.token = secret_of('b');
    const Client bob(options);
    CHECK(identical(bob.call<TensorRef>("held_ramp", 1 << 16), held));
    const Json shm = call(port, "server.info", nullptr, as("root"))["totals"]["tensors"]["shm"];
    CHECK(shm["tensors"] == 2);
    CHECK(shm["copied_bytes"] == 4 << 16);
}

TEST_CASE("shared-tensor leases lists and revokes", "[memory][leases][cli]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const auto held = client.call<TensorRef>("ramp", 1 << 16);
    const Ended list = run_client({"--url", server.url(), "leases"});
    CHECK(list.code == 0);
    CHECK(list.out.find("262144") != std::string::npos);
    CHECK(list.out.find(std::to_string(::getpid())) != std::string::npos);
    std::string id = run_client({"--url", server.url(), "leases", "--names"}).out;
    id.pop_back();
    CHECK(run_client({"--url", server.url(), "leases", "revoke", id}).out == "revoked 1\n");
    CHECK(leases_of(server.daemon.port()) == Json::array());
    CHECK(run_client({"--url", server.url(), "leases", "revoke", id}).code == 1);
    CHECK(run_client({"--url", server.url(), "leases", "revoke"}).code == 2);
    CHECK(run_client({"--url", server.url(), "leases", "what"}).code == 2);
}
