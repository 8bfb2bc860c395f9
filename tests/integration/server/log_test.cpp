// What the daemon logs of calls and requests, in both formats; names of requests; the level while it runs; crashes.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <filesystem>
#include <regex>
#include <sstream>
#include <thread>

#include <shared_tensor/client.hpp>

#include "base/system/unique_fd.hpp"
#include "integration/cli/run_client.hpp"
#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr const char* kTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

Words rough(const Words& options = {}) { return with_plugins(joined(options, {"--load", SHARED_TENSOR_ROUGH_PLUGIN})); }
Words json_debug(const Words& more = {}) {
    return rough(joined({"--log-level", "debug", "--log-format", "json"}, more));
}

/// The objects that a JSON log consists of so far. Throws if a whole line is none.
std::vector<Json> objects_in(const std::string& text) {
    std::vector<Json> objects;
    std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
    for (std::string line; std::getline(lines, line);)
        objects.push_back(Json::parse(line));
    return objects;
}

/// The first object of a JSON log with these members, once it is there.
Json object_with(const Daemon& daemon, const Json& members) {
    Json found;
    eventually([&] {
        for (const Json& object : objects_in(daemon.log())) {
            const auto has = [&](const auto& member) {
                return object.contains(member.key()) && object[member.key()] == member.value();
            };
            const auto items = members.items();
            if (std::all_of(items.begin(), items.end(), has)) found = object;
        }
        return !found.is_null();
    });
    return found;
}

HeaderList named(const std::string& id) { return {{"X-Request-Id", id}}; }

/// A call that streams, over a WebSocket.
void count_to(const Client& client, int last) {
    auto call = client.stream<std::int64_t>("count", shared_tensor::named("up_to", last));
    for (auto numbers = call.reader<std::int64_t>(); numbers.next();) {  // else the function may stop early
    }
    CHECK(call.result() == last);
}

std::string own_user() { return "uid:" + std::to_string(::getuid()); }

}  // namespace

TEST_CASE("each call is one line at debug: who called what, how its tensors crossed, how long it took",
          "[server][log]") {
    const Daemon daemon(json_debug());
    const Json body = call_object("scale", {{"x", {1, 2, 3}}, {"factor", 2}}, "id 7");
    post(daemon.port(), body.dump(), {{"X-Request-Id", "req-1"}, {"traceparent", kTrace}});
    const Json line = object_with(daemon, {{"message", "call"}, {"request_id", "req-1"}});
    CHECK(line["level"] == "debug");
    CHECK(line["function"] == "scale");
    CHECK(line["principal"] == own_user());
    CHECK(line["id"] == "id 7");
    CHECK(line["traceparent"] == kTrace);
    CHECK(line["outcome"] == "ok");
    CHECK(line["transport"] == "data");
    CHECK(line["tensors"].get<int>() >= 1);
    CHECK(line["copied_bytes"].get<int>() > 0);
    CHECK(line["queue_ms"].get<double>() >= 0);
    CHECK(line["run_ms"].get<double>() > 0);
    CHECK(line["total_ms"].get<double>() >= line["run_ms"].get<double>());

    CHECK(call_code(daemon.port(), "sleep", {-1, 2, 3}, named("req-2")) == -32602);
    CHECK(object_with(daemon, {{"request_id", "req-2"}, {"outcome", "error"}})["code"] == -32602);
    CHECK(call_code(daemon.port(), "no_such_method", {}, named("req-3")) == -32601);
    CHECK(object_with(daemon, {{"request_id", "req-3"}})["function"] == "no_such_method");
    call(daemon.port(), "server.ping", nullptr, named("req-4"));
    CHECK(object_with(daemon, {{"request_id", "req-4"}})["function"] == "server.ping");
    const Json task = call(daemon.port(), "task.submit", {{"method", "add"}, {"params", {1, 2}}}, named("req-5"))["id"];
    CHECK(object_with(daemon, {{"task", task}, {"function", "add"}})["request_id"] == "req-5");
    post(daemon.port(), R"({"jsonrpc":"2.0","method":"add","params":[1,2]})", named("req-6"));
    CHECK(object_with(daemon, {{"request_id", "req-6"}})["function"] == "add");
}

TEST_CASE("each item of a batch and each call of a WebSocket has its line", "[server][log]") {
    const Daemon daemon(json_debug());
    post(daemon.port(),
         R"([{"jsonrpc":"2.0","id":1,"method":"add","params":[1,2]},)"
         R"({"jsonrpc":"2.0","id":2,"method":"scale","params":[[1,2],3],"meta":{"request_id":"own"}}])",
         named("batch"));
    const Json first = object_with(daemon, {{"request_id", "batch"}, {"id", "1"}});
    CHECK(first["function"] == "add");
    CHECK(first["tensors"] == 0);
    const Json second = object_with(daemon, {{"request_id", "own"}, {"id", "2"}});
    CHECK(second["function"] == "scale");
    CHECK(second["tensors"] == 2);

    const Client client(daemon.url());
    count_to(client, 3);
    const Json line = object_with(daemon, {{"function", "count"}});
    CHECK(line["outcome"] == "ok");
    CHECK_FALSE(line["request_id"].get<std::string>().empty());
}

TEST_CASE("the log of text has the same fields behind the text of the line", "[server][log]") {
    const Daemon daemon(rough({"--log-level", "debug"}));
    call(daemon.port(), "add", {1, 2}, named("req-1"));
    const std::regex line("[-0-9T:.]+Z debug  call function=add principal=" + own_user() +
                          " request_id=req-1 id=1 outcome=ok queue_ms=\\d+\\.\\d{3} run_ms=\\d+\\.\\d{3} "
                          "total_ms=\\d+\\.\\d{3} tensors=0 copied_bytes=0\n");
    CHECK(eventually([&] { return std::regex_search(daemon.log(), line); }));
}

TEST_CASE("lines of a function name its request, also from threads of its own", "[server][log]") {
    const Daemon daemon(rough({"--log-format", "json"}));
    call(daemon.port(), "log_from_a_thread", {"hello"}, {{"X-Request-Id", "req-1"}, {"traceparent", kTrace}});
    const Json line = object_with(daemon, {{"message", "hello"}});
    CHECK(line["level"] == "warn");
    CHECK(line["function"] == "log_from_a_thread");
    CHECK(line["request_id"] == "req-1");
    CHECK(line["traceparent"] == kTrace);
}

TEST_CASE("every answer names its request: by the client's name, or by one of the daemon", "[server][log]") {
    const int port = shared_daemon();
    CHECK(http_request(port, "GET", "/healthz", "", named("mine")).header("X-Request-Id") == "mine");
    CHECK(post(port, call_object("add", {1, 2}).dump(), named("mine")).header("X-Request-Id") == "mine");
    CHECK(post(port, "no JSON", named("mine")).header("X-Request-Id") == "mine");
    CHECK(http_request(port, "GET", "/nothing", "", named("mine")).header("X-Request-Id") == "mine");
    std::vector<std::string> ids;
    for (const HttpReply& reply : {http_request(port, "GET", "/healthz"), http_request(port, "GET", "/nothing"),
                                   http_request(port, "GET", "/healthz", "", named("with \"quotes\"")),
                                   http_request(port, "GET", "/healthz", "", named(std::string(129, 'x'))),
                                   http_request(port, "GET", "/healthz", "", {{"Host", "evil.example"}})})
        ids.push_back(reply.header("X-Request-Id"));
    HttpPeer malformed(port);
    malformed.send("GET /healthz HTTP/1.1\r\nno field\r\n\r\n");
    ids.push_back(malformed.read().header("X-Request-Id"));
    for (const std::string& id : ids)
        CHECK(std::regex_match(id, std::regex("[0-9a-f]{8}-\\d+")));
    std::sort(ids.begin(), ids.end());
    CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
}

TEST_CASE("a traceparent comes back with the answer; a malformed one is ignored", "[server][log]") {
    const int port = shared_daemon();
    const auto echoed = [&](const std::string& trace) {
        return post(port, call_object("add", {1, 2}).dump(), {{"traceparent", trace}}).header("traceparent");
    };
    CHECK(echoed(kTrace) == kTrace);
    CHECK(echoed("00-xyz").empty());
    CHECK(http_request(port, "GET", "/nothing", "", {{"traceparent", kTrace}}).header("traceparent") == kTrace);
}

TEST_CASE("the receipt of a client names the request as the log does, also if it failed", "[server][log]") {
    const Daemon daemon(json_debug());
    const Client client(daemon.url());
    Receipt receipt;
    client.call<double>(receipt, "add", 1, 2);
    CHECK(object_with(daemon, {{"request_id", receipt.request_id}})["function"] == "add");
    Receipt failed;
    CHECK_THROWS_AS(client.call<double>(failed, "throw_as_torch", 3), FunctionFailed);
    CHECK(failed.request_id != receipt.request_id);
    CHECK(object_with(daemon, {{"request_id", failed.request_id}, {"message", "call"}})["outcome"] == "error");
}

TEST_CASE("a call that takes longer than --slow-call is a warning, with the fields of its line", "[server][log]") {
    const Daemon daemon(rough({"--log-format", "json", "--slow-call", "100ms"}));
    call(daemon.port(), "add", {1, 2}, named("fast"));
    call(daemon.port(), "sleep", {0.2}, named("slow"));
    const Json line = object_with(daemon, {{"message", "slow call"}, {"request_id", "slow"}});
    CHECK(line["level"] == "warn");
    CHECK(line["function"] == "sleep");
    CHECK(line["total_ms"].get<double>() >= 200);
    call(daemon.port(), "task.submit", {{"method", "sleep"}, {"params", {0.2}}}, named("task"));
    CHECK(object_with(daemon, {{"message", "slow call"}, {"request_id", "task"}})["function"] == "sleep");
    for (const Json& one : objects_in(daemon.log())) {  // on a busy machine "fast" may be slow, too
        if (one["message"] == "slow call") CHECK(one["total_ms"].get<double>() >= 100);
        if (one["message"] != "slow call") CHECK(one.value("request_id", "") != "fast");
    }
}

TEST_CASE("the access log has one line for each request, also for those that are rejected", "[server][log]") {
    const TemporaryFolder folder;
    const std::string path = folder.file("access");
    const auto lines = [&] {
        std::vector<std::string> all;
        std::istringstream text(text_of_file(path));
        for (std::string line; std::getline(text, line);)
            all.push_back(line);
        return all;
    };
    // The line of a request is written after its answer was sent, so lines of different connections may change places.
    const auto wait_for_lines = [&](std::size_t count) {
        REQUIRE(eventually([&] { return lines().size() == count; }));
    };
    const auto make_requests = [&](int port) {
        call(port, "add", {1, 2}, named("one"));
        wait_for_lines(1);
        http_request(port, "GET", "/tensors/a%22%c3%a4b?secret=1", "", named("two"));
        wait_for_lines(2);
        http_request(port, "GET", "/healthz", "", {{"Host", "evil.example"}, {"X-Request-Id", "three"}});
        wait_for_lines(3);
        HttpPeer malformed(port);
        malformed.send("nonsense\r\n\r\n");
        malformed.read();
    };
    {
        const Daemon daemon(rough({"--access-log", path}));
        make_requests(daemon.port());
        wait_for_lines(4);
        const auto all = lines();
        const std::string begin = R"(127\.0\.0\.1 - )",
                          time = R"( \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\] )";
        CHECK(std::regex_match(
            all[0], std::regex(begin + own_user() + time + R"("POST /jsonrpc HTTP/1\.1" 200 \d+ \d+ \d+\.\d{6} one)")));
        CHECK(std::regex_match(all[1],
                               std::regex(begin + own_user() + time +
                                          R"("GET /tensors/a\\x22\\xc3\\xa4b HTTP/1\.1" 40\d \d+ 0 \d+\.\d{6} two)")));
        CHECK(std::regex_match(
            all[2], std::regex(begin + "-" + time + R"("GET /healthz HTTP/1\.1" 403 \d+ 0 \d+\.\d{6} three)")));
        CHECK(std::regex_match(all[3], std::regex("- - -" + time + R"("-" 400 \d+ 0 \d+\.\d{6} [0-9a-f]{8}-\d+)")));
        struct stat status {};
        CHECK(::stat(path.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0600);
    }
    std::filesystem::remove(path);
    Daemon daemon(rough({"--access-log", path, "--log-format", "json"}));
    make_requests(daemon.port());
    CHECK(daemon.stop() == 0);  // writes what is still queued
    const auto objects = objects_in(text_of_file(path));
    REQUIRE(objects.size() == 4);
    CHECK(objects[0]["principal"] == own_user());
    CHECK(objects[0]["path"] == "/jsonrpc");
    CHECK(objects[1]["path"] == "/tensors/a\"\u00e4b");
    CHECK(objects[2]["status"] == 403);
    CHECK(objects[3]["method"] == "");
    CHECK(objects[3]["total_ms"].get<double>() >= 0);
}

TEST_CASE("lines of the access log that wait when the daemon ends are written", "[server][log]") {
    const TemporaryFolder folder;
    const std::string path = folder.file("access");
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const shared_tensor::UniqueFd pipe(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    REQUIRE(::fcntl(pipe.get(), F_SETPIPE_SZ, 4096) >= 0);
    constexpr int kRequests = 200;  // their lines have no room there
    std::string text;
    const auto read_all = [&] {
        char bytes[4096];
        for (ssize_t got = 0; (got = ::read(pipe.get(), bytes, sizeof bytes)) > 0;)
            text.append(bytes, static_cast<std::size_t>(got));
    };
    // A reader has a second: one that comes after a third of it gets all lines, unless the machine is busy.
    const auto all_are_written = [&] {
        read_all();
        text.clear();
        Daemon daemon(rough({"--access-log", path}));
        {
            HttpPeer peer(daemon.port());
            for (int i = 0; i < kRequests; ++i) {
                peer.request("GET", "/healthz");
                peer.read();
            }
        }
        daemon.child().signal(SIGTERM);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        const auto is_over = [&] {
            const bool has_ended = daemon.child().has_ended();
            read_all();
            return has_ended;
        };
        CHECK(eventually(is_over));
        return std::count(text.begin(), text.end(), '\n') == kRequests;
    };
    CHECK(eventually(all_are_written));
}

TEST_CASE("the access log goes to standard output for -, and a file that cannot be opened ends the start",
          "[server][log]") {
    const TemporaryFolder folder;
    const std::string ready = folder.file("ready"), out = folder.file("out");
    Child child({kDaemon, "--port", "0", "--ready-file", ready, "--access-log", "-"}, {}, out, folder.file("err"));
    REQUIRE(eventually([&] { return ::access(ready.c_str(), R_OK) == 0; }));
    const std::string url = text_of_file(ready);
    http_request(std::stoi(url.substr(url.rfind(':') + 1)), "GET", "/healthz");
    CHECK(eventually([&] { return text_of_file(out).find("\"GET /healthz HTTP/1.1\" 200 ") != std::string::npos; }));
    const Ended ended = run_daemon({"--port", "0", "--access-log", "/no/such/folder/file"});
    CHECK(ended.code == 1);
    CHECK_THAT(ended.err,
               ContainsSubstring("the file /no/such/folder/file cannot be opened: No such file or directory"));
}

TEST_CASE("a WebSocket is one request of the access log, which ends with it", "[server][log]") {
    const TemporaryFolder folder;
    const std::string path = folder.file("access");
    const Daemon daemon(rough({"--access-log", path}));
    { count_to(Client(daemon.url()), 3); }
    CHECK(eventually([&] { return text_of_file(path).find("\"GET /ws HTTP/1.1\" 101 ") != std::string::npos; }));
}

TEST_CASE("an admin reads and sets the level while the daemon runs, nobody else", "[server][log]") {
    const TokenDaemon daemon(token("boss", ":admin") + token("some"));
    CHECK(daemon.call("log.level", nullptr, bearer('b')) == Json{{"level", "info"}});
    CHECK(daemon.code("log.level", nullptr, bearer('s')) == -32007);
    CHECK(daemon.code("log.level", {"debug"}, bearer('s')) == -32007);
    CHECK(daemon.code("log.level", {"loud"}, bearer('b')) == -32602);
    daemon.call("add", {1, 2}, bearer('b'));
    CHECK(daemon.call("log.level", {{"level", "debug"}}, bearer('b')) == Json{{"level", "debug"}});
    CHECK(eventually([&] { return daemon.logs("the level of the log is debug now; it was info"); }));
    daemon.call("scale", {{1, 2}, 3}, bearer('s'));
    CHECK(eventually([&] { return daemon.logs("call function=scale principal=token:some"); }));
    CHECK_FALSE(daemon.logs("function=add"));
    daemon.call("log.level", {"off"}, bearer('b'));
    CHECK(daemon.call("log.level", nullptr, bearer('b')) == Json{{"level", "off"}});
}

TEST_CASE("an admin reads the last lines of the log and goes on after them, nobody else", "[server][log]") {
    const TokenDaemon daemon(token("boss", ":admin") + token("some"), {"--log-format", "json"});
    CHECK(daemon.code("log.tail", nullptr, bearer('s')) == -32007);
    CHECK(daemon.code("log.tail", {{"after", -1}}, bearer('b')) == -32602);
    CHECK(daemon.code("log.tail", {{"limit", 1001}}, bearer('b')) == -32602);
    Json first;
    REQUIRE(eventually([&] {  // the log's thread keeps a line some time after it was written
        first = daemon.call("log.tail", nullptr, bearer('b'));
        return !first["lines"].empty();
    }));
    CHECK(first["lines"].front()["number"] == 1);
    CHECK(first["lines"].back()["number"] == first["next"]);

    daemon.call("log.level", {"debug"}, bearer('b'));
    Json later;
    REQUIRE(eventually([&] {
        later = daemon.call("log.tail", {first["next"]}, bearer('b'));
        return !later["lines"].empty();
    }));
    const Json& warning = later["lines"].front();
    CHECK(warning["number"] == first["next"].get<int>() + 1);
    CHECK(warning["level"] == "warn");
    CHECK(warning["text"].get<std::string>().starts_with("the level of the log is debug now; it was info"));
    CHECK_THAT(warning["time"].get<std::string>(), Catch::Matchers::Matches("....-..-..T..:..:......Z"));
    daemon.call("add", {1, 2}, bearer('s'));
    CHECK(eventually([&] {
        const Json lines = daemon.call("log.tail", {first["next"]}, bearer('b'))["lines"];
        return std::any_of(lines.begin(), lines.end(), [](const Json& line) {
            return line["text"].get<std::string>().starts_with("call function=add principal=token:some");
        });
    }));
    CHECK(daemon.call("log.tail", {{"after", 0}, {"limit", 1}}, bearer('b'))["next"] == 1);
    CHECK(daemon.call("log.tail", {{"after", 1'000'000}}, bearer('b'))["lines"].empty());  // of an earlier start
}

TEST_CASE("the command line prints the last lines, and follows the log", "[server][log]") {
    const TemporaryFolder folder;
    const Daemon daemon(rough());
    const Words variables{"SHARED_TENSOR_URL=" + daemon.url()};
    CHECK(eventually([&] {
        return run_client({"log-tail"}, variables).out.find("Z info   listening on " + daemon.url()) !=
               std::string::npos;
    }));
    run_client({"log-level", "debug"}, variables);
    run_client({"log-level", "info"}, variables);
    CHECK(eventually([&] {
        const std::string last = run_client({"log-tail", "--limit", "1", "--json"}, variables).out;
        return Json::parse(last)["text"].get<std::string>().starts_with(
            "the level of the log is info now; it was debug");
    }));

    const std::string out = folder.file("out");
    Child follower({kClient, "log-tail", "--follow", "--interval", "50ms"}, variables, out, folder.file("err"));
    CHECK(eventually([&] { return text_of_file(out).find("it was debug") != std::string::npos; }));
    run_client({"log-level", "warn"}, variables);
    CHECK(eventually([&] { return text_of_file(out).find("is warn now; it was info") != std::string::npos; }));
}

TEST_CASE("the command line shows and sets the level", "[server][log]") {
    const Daemon daemon(rough());
    const Words variables{"SHARED_TENSOR_URL=" + daemon.url()};
    CHECK(run_client({"log-level"}, variables).out == "info\n");
    CHECK(run_client({"log-level", "debug"}, variables).out == "debug\n");
    CHECK(run_client({"log-level", "--json"}, variables).out == "{\"level\":\"debug\"}\n");
    const Ended wrong = run_client({"log-level", "loud"}, variables);
    CHECK(wrong.code == 1);
    CHECK_THAT(wrong.err, ContainsSubstring("trace, debug, info, warn, error or off"));
}

TEST_CASE("of a long error of libtorch the caller gets the first line, and the log all of it", "[server][log]") {
    const Daemon daemon(rough({"--log-format", "json"}));
    const Json error = respond(daemon.port(), "throw_as_torch", {300}, named("req-1"))["error"];
    CHECK(error["code"] == -32000);
    CHECK(error["data"]["type"] == "c10::Error");
    CHECK(error["data"]["message"] == "mat1 and mat2 shapes cannot be multiplied");
    const Json line = object_with(daemon, {{"request_id", "req-1"}});
    CHECK(line["level"] == "info");
    CHECK(line["message"] == "the function threw c10::Error: mat1 and mat2 shapes cannot be multiplied");
    const std::string details = line["details"];
    CHECK(details.size() > 20'000);
    CHECK(details.starts_with("advice in a second line\nException raised from f\nframe #0: "));
    CHECK(details.find("\nframe #296: ") != std::string::npos);
}

TEST_CASE("no line has a token, an argument, or elements of a tensor", "[server][log]") {
    const TemporaryFolder folder;
    const std::string access = folder.file("access");
    const char* const format = GENERATE("text", "json");
    const TokenDaemon daemon(token("alice", ":admin"), {"--log-level", "trace", "--log-format", format, "--access-log",
                                                        access, "--slow-call", "1ms"});
    const std::string secret = secret_of('a');
    const HeaderList alice = bearer('a');
    daemon.call("scale", {{"x", {31337.25, 2}}, {"factor", 2}}, alice);
    daemon.call("echo", {"an argument that nobody else may see"}, alice);
    daemon.code("echo", {"another argument", "too many of them"}, alice);
    const float elements[] = {31337.25F, 31337.25F};
    const std::string bytes(reinterpret_cast<const char*>(elements), sizeof elements);
    const std::string frame =
        framed(R"({"jsonrpc":"2.0","id":1,"method":"scale","params":[{"$tensor":{"dtype":"float32","shape":[2],)"
               R"("body":{"offset":0,"size":8}}},2]})",
               bytes);
    HeaderList framed_headers = alice;
    framed_headers.emplace_back("Content-Type", kFrame);
    CHECK(daemon.post(frame, framed_headers).status == 200);
    daemon.code("add", {1, 2}, {{"Authorization", "Bearer wrong-secret-of-another-user"}});
    http_request(daemon.port(), "GET", "/healthz?token=" + secret, "", {{"Authorization", "Bearer " + secret}});
    ClientOptions options;
    options.url = daemon.url();
    options.token = secret;
    CHECK(Client(options).call<double>("add", 1, 2) == 3.0);
    REQUIRE(eventually([&] { return text_of_file(access).find("/healthz") != std::string::npos; }));
    REQUIRE(eventually([&] { return daemon.logs("scale"); }));
    for (const std::string& log : {daemon.log(), text_of_file(access)}) {
        CHECK(log.size() > 100);
        for (const std::string& hidden :
             {secret, std::string("wrong-secret"), std::string("31337"), std::string("argument that nobody"),
              std::string("another argument"), bytes, std::string("62674")})
            CHECK(log.find(hidden) == std::string::npos);
    }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they have a report of their own

namespace {

/// Ends a daemon by a function; returns the code and the log.
Ended crashed(const Words& options, const std::string& how) {
    Daemon daemon(rough(options));
    HttpPeer peer(daemon.port());
    peer.request("POST", "/jsonrpc", call_object("end_process", {how}).dump(),
                 {{"X-Request-Id", "req-1"}, {"traceparent", kTrace}});
    const int code = daemon.child().wait();
    return {code, {}, daemon.log()};
}

}  // namespace

TEST_CASE("a fatal signal writes the call and the stack, then ends the daemon by that signal", "[server][log]") {
    for (const auto& [how, signal] :
         {std::pair{"abort", SIGABRT}, {"bad access", SIGSEGV}, {"deep recursion", SIGSEGV}}) {
        INFO(how);
        const Ended ended = crashed({}, how);
        CHECK(ended.code == 128 + signal);
        const std::regex stack(" in the function end_process, called by " + own_user() +
                               ", request req-1, id 1, traceparent " + kTrace + "\n  #0 /\\S+\\+0x[0-9a-f]+");
        CHECK(std::regex_search(ended.err, stack));
        CHECK(std::regex_search(ended.err, std::regex("\n  #\\d+ /\\S*librough_plugin\\.so\\+0x[0-9a-f]+")));
    }
}

TEST_CASE("a crash writes objects into the JSON log", "[server][log]") {
    const Ended ended = crashed({"--log-format", "json"}, "abort");
    CHECK(ended.code == 128 + SIGABRT);
    const auto objects = objects_in(ended.err);
    const auto last = std::find_if(objects.begin(), objects.end(), [](const Json& object) {
        return object["message"].get<std::string>().starts_with("ended by SIGABRT");
    });
    REQUIRE(last != objects.end());
    CHECK((*last)["function"] == "end_process");
    CHECK((*last)["request_id"] == "req-1");
    CHECK((*last)["traceparent"] == kTrace);
    CHECK(objects.back()["message"].get<std::string>().starts_with("frame "));
}

TEST_CASE("with --no-crash-report a fatal signal ends the daemon as any program", "[server][log]") {
    const Ended ended = crashed({"--no-crash-report"}, "abort");
    CHECK(ended.code == 128 + SIGABRT);
    CHECK(ended.err.find("SIGABRT") == std::string::npos);
}

TEST_CASE("a worker process that crashes names its function, and the caller learns function and signal",
          "[server][log][processes]") {
    Daemon daemon(json_debug({"--processes", "1"}));
    const Json error =
        respond(daemon.port(), "end_process", {"abort"}, {{"X-Request-Id", "req-1"}, {"traceparent", kTrace}});
    CHECK(error["error"]["data"]["type"] == "WorkerDied");
    CHECK_THAT(error["error"]["data"]["message"].get<std::string>(),
               ContainsSubstring("was ended by SIGABRT in the function end_process"));
    const Json line = object_with(daemon, {{"function", "end_process"}, {"level", "error"}});
    CHECK(line["request_id"] == "req-1");
    CHECK(line["principal"] == own_user());
    CHECK(line["traceparent"] == kTrace);

    call(daemon.port(), "log_from_a_thread", {"of a worker"}, named("req-2"));
    CHECK(object_with(daemon, {{"message", "of a worker"}})["request_id"] == "req-2");
    CHECK_FALSE(object_with(daemon, {{"message", "call"}, {"request_id", "req-2"}}).is_null());
    const auto objects = objects_in(daemon.log());
    CHECK(std::count_if(objects.begin(), objects.end(), [](const Json& object) {
              return object["message"] == "call" && object.value("request_id", "") == "req-2";
          }) == 1);
    call(daemon.port(), "log.level", {"error"});
    call(daemon.port(), "log_from_a_thread", {"too low"}, named("req-3"));
    call(daemon.port(), "log.level", {"info"});
    call(daemon.port(), "log_from_a_thread", {"high enough"}, named("req-4"));
    CHECK_FALSE(object_with(daemon, {{"message", "high enough"}}).is_null());
    CHECK_FALSE(daemon.logs("too low"));
    CHECK(daemon.stop() == 0);
}

#endif
