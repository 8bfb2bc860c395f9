#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "integration/cli/run_client.hpp"
#include "integration/client/example_daemon.hpp"
#include "integration/memory/raw_channel.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

TransportInfo transport(const Client& client, const std::string& name) {
    const auto transports = client.transports();
    const auto found =
        std::find_if(transports.begin(), transports.end(), [&](const TransportInfo& one) { return one.name == name; });
    return found == transports.end() ? TransportInfo{} : *found;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("A client learns which transports can be used, and why not the others", "[memory][doctor]") {
    const ExampleDaemon server;
    CHECK(transport(server.client(), "shm").usable);
    CHECK(transport(server.client(), "body").usable);
    CHECK_FALSE(transport(server.client(), "cuda_ipc").usable);
    CHECK(transport(server.client(), "cuda_ipc").reason.size() > 20);

    const TransportInfo far = transport(far_client(server.url()), "shm");
    CHECK_FALSE(far.usable);
    CHECK(has(far.reason, "ClientOptions::local_socket"));
    ClientOptions options;
    options.url = server.url();
    options.local_socket = "/nonexistent/socket";
    CHECK(has(transport(Client(options), "shm").reason, "/nonexistent/socket"));

    const ExampleDaemon alone({"--local-socket", "none"});
    CHECK_FALSE(transport(alone.client(), "shm").usable);
    const Json shm = Json::parse(alone.client().info().json)["transports"]["shm"];
    CHECK(shm["usable"] == false);
    CHECK(has(shm["reason"], "--local-socket none"));
}

TEST_CASE("session.open judges the transports by what the client says of itself", "[memory][doctor]") {
    const ExampleDaemon server;
    const auto reason = [&](const Json& facts, const char* transport) {
        const Json answer = call(server.daemon.port(), "session.open", facts)["transports"][transport];
        return answer["usable"] == true ? std::string() : answer["reason"].get<std::string>();
    };
    const std::string socket = call(server.daemon.port(), "server.info")["local_socket"];
    CHECK(has(reason(Json::object(), "shm"), socket));
    CHECK(has(reason({{"boot_id", "another"}}, "shm"), "another host"));
    CHECK(reason({{"boot_id", "another"}}, "body").empty());
    CHECK(has(reason({{"accept", {"data"}}}, "body"), "does not accept"));
    CHECK(reason({{"accept", {"data"}}}, "data").empty());
    CHECK(call_code(server.daemon.port(), "session.open", {{"boot_id", 5}}) == -32602);
    CHECK(call_code(server.daemon.port(), "session.open", {{"accept", "shm"}}) == -32602);
}

TEST_CASE("A client of another version of the protocol gets one error that says what to do", "[memory][doctor]") {
    const ExampleDaemon server;
    const int port = server.daemon.port();
    const auto has_reason = [](const Json& response, const char* theirs) {
        const std::string detail = response["error"]["data"]["detail"];
        return response["error"]["code"] == -32600 && has(detail, "this server speaks protocol 0.2") &&
               has(detail, std::string("the client speaks ") + theirs) && has(detail, "install the same version");
    };
    const Json range = call(port, "server.info")["protocol"];
    CHECK(range == Json{{"oldest", "0.2"}, {"newest", "0.2"}});
    CHECK(has_reason(respond(port, "add", {1, 2}, {{"Shared-Tensor-Protocol", "0.1"}}), "0.1"));
    CHECK(has_reason(respond(port, "add", {1, 2}, {{"Shared-Tensor-Protocol", "0.3"}}), "0.3"));
    CHECK(call(port, "add", {1, 2}, {{"Shared-Tensor-Protocol", "0.2"}}) == 3);
    CHECK(has_reason(RawChannel(port).ask("session.open", {{"boot_id", "b"}}), "0.1"));
    CHECK(has_reason(RawChannel(port).ask("session.open", {{"protocol", "0.3"}}), "0.3"));
    const Json opened = RawChannel(port).ask("session.open", {{"protocol", "0.2"}, {"boot_id", "b"}});
    CHECK(opened["result"]["protocol"] == "0.2");
}

TEST_CASE("shared-tensor doctor prints the table, for a URL too", "[memory][doctor][cli]") {
    const ExampleDaemon server;
    const Ended report = run_client({"doctor", server.url()});
    CHECK(report.code == 0);
    CHECK(has(report.out, "shm       yes"));
    CHECK(has(report.out, "cuda_ipc  no: "));
    CHECK(has(report.out, "round trip"));
    const Json json = Json::parse(run_client({"--url", server.url(), "doctor", "--json"}).out);
    CHECK(json["shm"]["usable"] == true);
    CHECK(run_client({"doctor", "http://127.0.0.1:1"}).code == 3);
    CHECK(run_client({"doctor", "nonsense"}).code == 2);
}

TEST_CASE("shared-tensor-server doctor prints the same table and looks at the host", "[memory][doctor]") {
    const Ended report = run_daemon({"doctor"});
    CHECK(report.code == 0);
    CHECK(has(report.out, "shm       yes"));
    CHECK(has(report.out, "cuda_ipc  no: "));
    CHECK(has(report.out, "sealed shared memory: works"));
    const Ended without = run_daemon({"doctor", "--local-socket", "none"});
    CHECK(without.code == 1);
    CHECK(has(without.out, "--local-socket none"));
    CHECK(has(run_daemon({"doctor", "--help"}).out, "--local-socket"));
    CHECK(run_daemon({"doctor", "--nonsense"}).code == 1);
    const TemporaryFolder folder;  // the options of a server that runs
    const Words options{"--unix-socket", folder.file("s"), "--operations-listen",
                        "127.0.0.1:0",   "--access-log",   folder.file("log")};
    const ExampleDaemon running(options);
    CHECK(run_daemon(joined({"doctor"}, options)).code == 0);
}

TEST_CASE("No socket is left after a daemon's end, and none of a killed one is in the way", "[memory]") {
    TemporaryFolder folder;
    const std::string path = folder.file("channel"), unix_socket = folder.file("http"),
                      alias = folder.file("http.local");
    const auto there = [](const std::string& file) {
        struct stat found {};
        return ::lstat(file.c_str(), &found) == 0;
    };
    {
        ExampleDaemon server({"--local-socket", path});
        struct stat found {};
        REQUIRE(::lstat(path.c_str(), &found) == 0);
        CHECK(S_ISSOCK(found.st_mode));
        CHECK((found.st_mode & 0777) == 0600);
        CHECK(server.daemon.stop() == 0);
        CHECK_FALSE(there(path));
    }
    for (int round = 0; round < 2; ++round) {
        ExampleDaemon server({"--local-socket", path});
        server.daemon.child().signal(SIGKILL);
        server.daemon.child().wait();
        CHECK(there(path));
    }
    {
        ExampleDaemon server({"--unix-socket", unix_socket});
        CHECK(transport(Client("unix:" + unix_socket), "shm").usable);
        CHECK(transport(server.client(), "shm").usable);
        CHECK(server.daemon.stop() == 0);
        CHECK_FALSE(there(alias));
    }
    CHECK(run_daemon({"--port", "0", "--local-socket", "/nonexistent/channel"}).code == 1);
}
