// Tokens: what each of them allows, and their file while the daemon runs.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include <fstream>
#include <future>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/daemon.hpp"
#include "support/faulty_proxy.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string secret_of(char letter) { return std::string(32, letter); }
std::string line_of(const std::string& name, char letter, const std::string& more = "") {
    return name + ":" + secret_of(letter) + more + "\n";
}
HeaderList with_token(char letter) { return {{"Authorization", "Bearer " + secret_of(letter)}}; }

struct TokenDaemon {
    explicit TokenDaemon(const std::string& tokens)
        : file(folder.write("tokens", tokens)), daemon(with_plugins({"--token-file", file})) {}
    Client client(char letter, const std::string& local_socket = "none") const {
        ClientOptions options;
        options.url = "http://127.0.0.1:" + std::to_string(daemon.port());
        options.token = secret_of(letter);
        options.local_socket = local_socket;
        options.retry = no_retry();
        return Client(options);
    }
    int status(const std::string& method, const std::string& path, char letter) const {
        HttpPeer peer(daemon.port());
        peer.request(method, path, "", with_token(letter));
        return peer.read(method != "HEAD").status;
    }
    TemporaryFolder folder;
    const std::string file;
    Daemon daemon;
};

}  // namespace

TEST_CASE("a token calls the methods that its line allows, and no others", "[security][tokens]") {
    const TokenDaemon server(line_of("all", 'a') + line_of("some", 's', ":allow=add,tensor.*") +
                             line_of("boss", 'b', ":admin:allow=ech*"));
    const int port = server.daemon.port();
    CHECK(call_code(port, "add", {1, 2}, with_token('s')) == 0);
    CHECK(call_code(port, "echo", {1}, with_token('s')) == -32007);
    CHECK(call_code(port, "nothing", {1}, with_token('s')) == -32007);  // nor does it learn what there is
    CHECK(call_code(port, "cache.clear", nullptr, with_token('s')) == -32007);
    CHECK(call_code(port, "tensor.list", nullptr, with_token('s')) == 0);
    CHECK(call_code(port, "server.ping", nullptr, with_token('s')) == 0);
    CHECK(call_code(port, "echo", {1}, with_token('b')) == 0);
    CHECK(call_code(port, "add", {1, 2}, with_token('b')) == -32007);
    CHECK(call_code(port, "cache.clear", nullptr, with_token('b')) == -32007);
    CHECK(call_code(port, "echo", {1}, with_token('a')) == 0);
}

TEST_CASE("no other way leads to a method that a token does not allow", "[security][tokens]") {
    const TokenDaemon server(line_of("some", 's', ":allow=add") + line_of("all", 'a'));
    const int port = server.daemon.port();
    SECTION("a task") {
        CHECK(call_code(port, "task.submit", {{"method", "echo"}, {"params", {1}}}, with_token('s')) == -32007);
        CHECK(call_code(port, "task.submit", {{"method", "add"}, {"params", {1, 2}}}, with_token('s')) == 0);
    }
    SECTION("an item of a batch") {
        const Json batch{call_object("add", {1, 2}, 1), call_object("echo", {1}, 2),
                         call_object("task.submit", {{"method", "echo"}}, 3)};
        const Json answers = Json::parse(post(port, batch.dump(), with_token('s')).body);
        CHECK(code_of(answers[0]) == 0);
        CHECK(code_of(answers[1]) == -32007);
        CHECK(code_of(answers[2]) == -32007);
    }
    SECTION("a stream") {
        CHECK_THROWS_AS(server.client('s').stream<std::int64_t>("count", named("up_to", 3)).result(), NotAuthorised);
        auto allowed = server.client('a').stream<std::int64_t>("count", named("up_to", 3));
        auto numbers = allowed.reader<std::int64_t>();
        for (std::int64_t expected = 1; expected <= 3; ++expected)
            CHECK(numbers.next() == expected);
        CHECK(allowed.result() == 3);
    }
    SECTION("events over a plain request") {
        HeaderList headers = with_token('s');
        headers.emplace_back("Accept", "text/event-stream");
        const HttpReply reply = post(port, call_object("count", {{"up_to", 3}}).dump(), headers);
        CHECK_THAT(reply.body, ContainsSubstring("-32007"));
    }
    SECTION("files of tensors") {
        CHECK(server.status("GET", "/tensors/x", 's') == 403);
        CHECK(server.status("HEAD", "/tensors/x", 's') == 403);
        CHECK(server.status("PUT", "/tensors/x.npy", 's') == 403);
        CHECK(server.status("GET", "/tensors/x", 'a') == 404);
        CHECK(server.status("GET", "/healthz", 's') == 200);
    }
}

TEST_CASE("the token file is read again while the daemon runs", "[security][tokens]") {
    TokenDaemon server(line_of("old", 'o') + line_of("kept", 'k') + line_of("cut", 'c'));
    const int port = server.daemon.port();
    const Client kept = server.client('k');
    CHECK(kept.call<double>("add", 1, 2) == 3);
    std::ofstream(server.file) << line_of("new", 'n') + line_of("kept", 'k') + line_of("cut", 'c', ":allow=add");
    CHECK(eventually([&] { return call_code(port, "server.ping", nullptr, with_token('n')) == 0; }));
    CHECK(post(port, call_object("server.ping", nullptr).dump(), with_token('o')).status == 401);
    CHECK(call_code(port, "echo", {1}, with_token('c')) == -32007);
    CHECK(call_code(port, "add", {1, 2}, with_token('c')) == 0);
    CHECK(kept.call<double>("add", 1, 2) == 3);

    SECTION("what cannot be used changes nothing, and is logged") {
        const auto broken = GENERATE(std::string("no colon\n"), std::string("short:secret\n"), std::string(),
                                     line_of("late", 'l', ":typo"), line_of("one", 'x') + line_of("two", 'x'));
        std::ofstream(server.file) << broken;
        CHECK(eventually([&] { return server.daemon.log().find("cannot be used") != std::string::npos; }));
        CHECK(call_code(port, "server.ping", nullptr, with_token('n')) == 0);
    }
    SECTION("nor does a file that others may read") {
        ::chmod(server.file.c_str(), 0644);
        CHECK(eventually([&] { return server.daemon.log().find("cannot be used") != std::string::npos; }));
        CHECK(call_code(port, "server.ping", nullptr, with_token('n')) == 0);
    }
    CHECK(server.daemon.log().find(secret_of('n')) == std::string::npos);
}

TEST_CASE("who showed a token that is gone is sent away", "[security][tokens]") {
    TokenDaemon server(line_of("old", 'o') + line_of("kept", 'k'));
    SECTION("from a stream") {
        auto gone = server.client('o').stream<std::int64_t>("count", named("up_to", 1'000'000'000),
                                                            named("seconds_between", 0.01));
        auto kept = server.client('k').stream<std::int64_t>("count", named("up_to", 1'000'000'000),
                                                            named("seconds_between", 0.01));
        auto lost_numbers = gone.reader<std::int64_t>(), numbers = kept.reader<std::int64_t>();
        CHECK(lost_numbers.next() == 1);
        CHECK(numbers.next() == 1);
        std::ofstream(server.file) << line_of("kept", 'k');
        CHECK_THROWS_AS(
            [&] {
                while (lost_numbers.next()) {
                }
            }(),
            RpcError);
        CHECK(numbers.next() == 2);
    }
    SECTION("from the local channel") {
        const Client client = server.client('o', "auto");
        const at::Tensor x = at::arange(100'000, at::kFloat);
        CHECK(client.with({.require = "shm"}).call<at::Tensor>("scale", x, 2.0).numel() == x.numel());
        std::ofstream(server.file) << line_of("kept", 'k');
        CHECK(eventually([&] {
            try {
                client.call<at::Tensor>("scale", x, 2.0);
                return false;
            } catch (const NotAuthorised&) {
                return true;
            } catch (const RpcError&) {  // the channel was closed in the middle of a call
                return false;
            }
        }));
        const auto leases = [&] {
            return call(server.daemon.port(), "server.info", nullptr,
                        with_token('k'))["totals"]["shared_memory"]["leases"] == 0;
        };
        CHECK(eventually(leases));
    }
}

TEST_CASE("a result that comes when its local channel is closed has expired", "[security][tokens]") {
    FaultyProxy proxy;
    TemporaryFolder folder;
    const std::string tokens = folder.write("tokens", line_of("old", 'o') + line_of("kept", 'k'));
    const std::string channel = folder.path() + "/channel";
    const Daemon daemon(
        with_plugins({"--token-file", tokens, "--local-socket", channel, "--allowed-host", proxy.authority()}));
    proxy.pass_on_to(daemon.port());
    const auto leases = [&] {
        return call(daemon.port(), "server.info", nullptr, with_token('k'))["totals"]["shared_memory"]["leases"]
            .get<int>();
    };
    ClientOptions options;
    options.url = proxy.url();
    options.local_socket = channel;
    options.token = secret_of('o');
    const Client client(options);
    const at::Tensor x = at::arange(100'000, at::kFloat);
    const at::Tensor kept = client.with({.require = "shm"}).call<at::Tensor>("scale", x, 2.0);
    proxy.hold_back(true);
    auto result = std::async(std::launch::async, [&] { return client.call<at::Tensor>("scale", x, 3.0); });
    const std::shared_ptr<void> at_end(nullptr, [&](void*) { proxy.hold_back(false); });
    CHECK(eventually([&] { return leases() == 2; }));  // of `kept` and of what is held back
    std::ofstream(tokens) << line_of("kept", 'k');
    CHECK(eventually([&] { return leases() == 0; }));
    proxy.hold_back(false);
    CHECK_THROWS_AS(result.get(), TensorExpired);
    CHECK(kept[3].item<float>() == 6);
}

TEST_CASE("a token file that says something wrong is rejected with its line", "[security][tokens]") {
    TemporaryFolder folder;
    const auto rejection = [&](const std::string& text) {
        const Ended ended = run_daemon({"--port", "0", "--token-file", folder.write("tokens", text)});
        CHECK(ended.code == 1);
        return ended.err;
    };
    CHECK_THAT(rejection(line_of("a", 'a') + "nonsense\n"), ContainsSubstring("line 2"));
    CHECK_THAT(rejection(line_of("a", 'a', ":allow=")), ContainsSubstring("allow="));
    CHECK_THAT(rejection(line_of("a", 'a', ":allow=a*b")), ContainsSubstring("a * may only end one"));
    CHECK_THAT(rejection(line_of("a", 'a') + line_of("a", 'b')), ContainsSubstring("already"));
    CHECK_THAT(rejection("# nobody\n"), ContainsSubstring("no token"));
}
