// Tokens: what each of them allows, and their file while the daemon runs.

#include <fstream>
#include <future>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "integration/client/transfers.hpp"
#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

Client client_of(const OwnDaemon& daemon, char letter, const std::string& local_socket = "none") {
    ClientOptions options;
    options.url = daemon.url();
    options.token = secret_of(letter);
    options.local_socket = local_socket;
    options.retry = no_retry();
    return Client(options);
}

int leases(const Calls& daemon) {
    return daemon.call("server.info", nullptr, bearer('k'))["totals"]["shared_memory"]["leases"];
}

}  // namespace

TEST_CASE("a token calls the methods that its line allows, and no others", "[security][tokens]") {
    const TokenDaemon daemon(token("all") + token("some", ":allow=add,tensor.*") + token("boss", ":admin:allow=ech*"));
    struct Case {
        char who;
        const char* method;
        Json params;
        int code;
    };
    for (const Case& one : std::initializer_list<Case>{
             {'s', "add", {1, 2}, 0},
             {'s', "echo", {1}, -32007},
             {'s', "nothing", {1}, -32007},  // nor does it learn what there is
             {'s', "cache.clear", nullptr, -32007},
             {'s', "tensor.list", nullptr, 0},
             {'s', "server.ping", nullptr, 0},
             {'b', "echo", {1}, 0},
             {'b', "add", {1, 2}, -32007},
             {'b', "cache.clear", nullptr, -32007},
             {'a', "echo", {1}, 0},
         }) {
        INFO(one.who << ' ' << one.method);
        CHECK(daemon.code(one.method, one.params, bearer(one.who)) == one.code);
    }
}

TEST_CASE("no other way leads to a method that a token does not allow", "[security][tokens]") {
    const TokenDaemon daemon(token("some", ":allow=add") + token("all"));
    const HeaderList some = bearer('s');
    SECTION("a task, and an item of a batch") {
        CHECK(daemon.code("task.submit", {{"method", "echo"}, {"params", {1}}}, some) == -32007);
        CHECK(daemon.code("task.submit", {{"method", "add"}, {"params", {1, 2}}}, some) == 0);
        const Json batch{call_object("add", {1, 2}, 1), call_object("echo", {1}, 2),
                         call_object("task.submit", {{"method", "echo"}}, 3)};
        const Json answers = Json::parse(daemon.post(batch.dump(), some).body);
        CHECK(code_of(answers[0]) == 0);
        CHECK(code_of(answers[1]) == -32007);
        CHECK(code_of(answers[2]) == -32007);
    }
    SECTION("a stream, and events over a plain request") {
        CHECK_THROWS_AS(client_of(daemon, 's').stream<std::int64_t>("count", named("up_to", 3)).result(),
                        NotAuthorised);
        auto allowed = client_of(daemon, 'a').stream<std::int64_t>("count", named("up_to", 3));
        auto numbers = allowed.reader<std::int64_t>();
        for (std::int64_t expected = 1; expected <= 3; ++expected)
            CHECK(numbers.next() == expected);
        CHECK(allowed.result() == 3);
        HeaderList headers = some;
        headers.emplace_back("Accept", "text/event-stream");
        CHECK_THAT(daemon.post(call_object("count", {{"up_to", 3}}).dump(), headers).body, ContainsSubstring("-32007"));
    }
    SECTION("files of tensors") {
        const auto status = [&](const char* method, const char* path, char who) {
            return http_request(daemon.port(), method, path, "", bearer(who)).status;
        };
        CHECK(status("GET", "/tensors/x", 's') == 403);
        CHECK(status("HEAD", "/tensors/x", 's') == 403);
        CHECK(status("PUT", "/tensors/x.npy", 's') == 403);
        CHECK(status("GET", "/tensors/x", 'a') == 404);
        CHECK(status("GET", "/healthz", 's') == 200);
    }
}

TEST_CASE("the token file is read again while the daemon runs", "[security][tokens]") {
    const TokenDaemon daemon(token("old") + token("kept") + token("cut"));
    const auto is_known = [&] { return daemon.code("server.ping", nullptr, bearer('n')) == 0; };
    const Client kept = client_of(daemon, 'k');
    CHECK(kept.call<double>("add", 1, 2) == 3);
    std::ofstream(daemon.tokens) << token("new") + token("kept") + token("cut", ":allow=add");
    CHECK(eventually(is_known));
    CHECK(daemon.post(call_object("server.ping", nullptr).dump(), bearer('o')).status == 401);
    CHECK(daemon.code("echo", {1}, bearer('c')) == -32007);
    CHECK(daemon.code("add", {1, 2}, bearer('c')) == 0);
    CHECK(kept.call<double>("add", 1, 2) == 3);

    // What cannot be used changes nothing, and is logged.
    const std::string broken = GENERATE(std::string("no colon\n"), std::string("short:secret\n"), std::string(),
                                        token("late", ":typo"), token("x1") + token("x2"), std::string("others read"));
    if (broken == "others read") {
        ::chmod(daemon.tokens.c_str(), 0644);
    } else {
        std::ofstream(daemon.tokens) << broken;
    }
    CHECK(eventually([&] { return daemon.logs("cannot be used"); }));
    CHECK(is_known());
    CHECK_FALSE(daemon.logs(secret_of('n')));
}

TEST_CASE("who showed a token that is gone is sent away", "[security][tokens]") {
    const TokenDaemon daemon(token("old") + token("kept"));
    SECTION("from a stream") {
        const auto count = [&](char who) {
            return client_of(daemon, who)
                .stream<std::int64_t>("count", named("up_to", 1'000'000'000), named("seconds_between", 0.01));
        };
        auto gone = count('o'), kept = count('k');
        auto lost_numbers = gone.reader<std::int64_t>(), numbers = kept.reader<std::int64_t>();
        CHECK(lost_numbers.next() == 1);
        CHECK(numbers.next() == 1);
        std::ofstream(daemon.tokens) << token("kept");
        const auto read_all = [&] {
            while (lost_numbers.next()) {
            }
        };
        CHECK_THROWS_AS(read_all(), RpcError);
        CHECK(numbers.next() == 2);
    }
    SECTION("from the local channel") {
        const Client client = client_of(daemon, 'o', "auto");
        const TensorRef x = ramp(100'000);
        CHECK(identical(client.with({.require = "shm"}).call<TensorRef>("scale", x, 2.0), ramp(100'000, 2)));
        std::ofstream(daemon.tokens) << token("kept");
        CHECK(eventually([&] {
            try {
                client.call<TensorRef>("scale", x, 2.0);
            } catch (const NotAuthorised&) {
                return true;
            } catch (const RpcError&) {  // the channel was closed in the middle of a call
            }
            return false;
        }));
        CHECK(eventually([&] { return leases(daemon) == 0; }));
    }
}

TEST_CASE("a result that comes when its local channel is closed has expired", "[security][tokens]") {
    FaultyProxy proxy;
    TemporaryFolder folder;
    const std::string channel = folder.file("channel");
    const TokenDaemon daemon(token("old") + token("kept"),
                             {"--local-socket", channel, "--allowed-host", proxy.authority()});
    proxy.pass_on_to(daemon.port());
    ClientOptions options;
    options.url = proxy.url();
    options.local_socket = channel;
    options.token = secret_of('o');
    const Client client(options);
    const TensorRef x = ramp(100'000);
    const auto kept = client.with({.require = "shm"}).call<TensorRef>("scale", x, 2.0);
    proxy.hold_back(true);
    auto result = std::async(std::launch::async, [&] { return client.call<TensorRef>("scale", x, 3.0); });
    const std::shared_ptr<void> at_end(nullptr, [&](void*) { proxy.hold_back(false); });
    CHECK(eventually([&] { return leases(daemon) == 2; }));  // of `kept` and of what is held back
    std::ofstream(daemon.tokens) << token("kept");
    CHECK(eventually([&] { return leases(daemon) == 0; }));
    proxy.hold_back(false);
    CHECK_THROWS_AS(result.get(), TensorExpired);
    CHECK(identical(kept, ramp(100'000, 2)));
}
