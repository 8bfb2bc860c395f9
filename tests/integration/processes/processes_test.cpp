#include <shared_tensor/processes.hpp>

#include <signal.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/shared_memory.hpp>
#include <shared_tensor/tensors.hpp>

#include "integration/client/transfers.hpp"
#include "support/process.hpp"
#include "support/raw_http.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

constexpr const char* kOnlyStarted = "a role of a second process: the tests of this file start it";

struct Tally {
    std::atomic<int> sum{0};
};

}  // namespace

SHARED_TENSOR_OBJECT("tally", Tally);

namespace {

int die(const std::string& how) {
    if (how == "exit") std::_Exit(7);
    if (how == "abort") std::abort();
    if (how == "SIGSEGV") ::signal(SIGSEGV, SIG_DFL);  // a sanitizer handles it
    ::raise(how == "SIGSEGV" ? SIGSEGV : SIGKILL);
    return 0;
}

std::string slow(Context& context, int steps) {
    for (int i = 0; i < steps; ++i) {
        context.progress(static_cast<double>(i) / steps, "step " + std::to_string(i));
        if (!context.sleep_for(20ms)) throw CancelledError();
    }
    return std::string(context.caller().task);
}

bool until_there(Context& context, const std::string& file) {
    while (::access(file.c_str(), F_OK) != 0) {
        if (!context.sleep_for(5ms)) throw CancelledError();
    }
    return true;
}

std::atomic<int> ended_naps{0};

bool nap(Context& context) {
    const bool slept = context.sleep_for(30s);
    if (!slept) ++ended_naps;
    return slept;
}

Registry functions() {
    Registry all;
    all.add("nap", nap);
    all.add("ended_naps", [] { return ended_naps.load(); });
    all.add("pid", [] { return static_cast<int>(::getpid()); });
    all.add(
        "add", [](int a, int b) { return a + b; }, arg("a"), arg("b") = 1);
    all.add("same", [](const TensorRef& x) { return x; });
    all.add("die", die, arg("how"));
    all.add("fail", [](int) -> int { throw std::out_of_range("no such thing"); });
    all.add("caller", [](Context& context) {
        return std::vector<std::string>{std::string(context.caller().principal), std::string(context.caller().session)};
    });
    all.add("slow", slow, arg("steps"));
    all.add("slow_task", slow, arg("steps"), execution::task);
    all.add("until_there", until_there, arg("file"));
    all.add(
        "cached_pid", [](int) { return static_cast<int>(::getpid()); }, cached(1h));
    all.add(
        "inline_pid", [] { return static_cast<int>(::getpid()); }, execution::inline_);
    all.add(
        "cached_slow", [](Context& context, int) { return context.sleep_for(3s); }, cached(1h));
    all.add("time_left", [](Context& context) {
        return std::chrono::duration<double>(context.deadline() - std::chrono::steady_clock::now()).count();
    });
    all.add(
        "alone",
        [](int milliseconds) {
            static std::atomic<int> inside{0};
            const int with_me = ++inside;
            std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));  // a cancellation does not end it
            --inside;
            return with_me;
        },
        arg("milliseconds"), concurrency(1));
    all.add(
        "write_alone",
        [](Writer<int> numbers, int milliseconds) {
            numbers.write(1);
            std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));  // a cancellation does not end it
        },
        arg("numbers"), arg("milliseconds"), concurrency(1));
    all.add("make_tally", [] { return Shared<Tally>(std::make_shared<Tally>()); });
    all.add("count_up", [](const Shared<Tally>& tally, int by) { return tally->sum += by; });
    all.add("where", [](const Shared<Tally>&) { return static_cast<int>(::getpid()); });
    all.add(
        "sums",
        [](Reader<int> numbers, Writer<int> sums) {
            int sum = 0;
            for (const int number : numbers)
                sums.write(sum += number);
            return sum;
        },
        arg("numbers"), arg("sums"));
    all.add("two_streams", [](Writer<int> first, Writer<int> second, const std::string& end) {
        for (int i = 0; first.write(i) && second.write(i); ++i) {
            if (i == 3 && end == "throw") throw std::out_of_range("thrown");
            if (i == 3 && end == "die") die("exit");
        }
        return 7;
    });
    all.add("twice", [](Writer<TensorRef> copies, const TensorRef& x) {
        copies.write(x);
        copies.write(x);
    });
    return all;
}

ServerOptions on_any_port() {
    ServerOptions options;
    options.port = 0;
    options.calls.pool.workers = 8;
    return options;
}

struct Served {
    explicit Served(std::size_t processes = 2, ServerOptions options = on_any_port(), std::string role = "worker",
                    std::chrono::milliseconds first_delay = 10ms)
        : workers({.processes = processes,
                   .command = {"/proc/self/exe", "role: " + role},
                   .first_delay = first_delay,
                   .longest_delay = std::max(first_delay, 50ms)}),
          server(workers.share(functions()), std::move(options)) {
        workers.start();
        server.start();
        client.emplace(server.url());
    }
    ~Served() { server.stop(0ms); }

    const Client* operator->() const { return &*client; }
    bool all_ready() const {
        return eventually([&] {
            const auto all = workers.status();
            return std::all_of(all.begin(), all.end(), [](const auto& one) { return one.ready; });
        });
    }
    std::set<pid_t> pids() const {
        std::set<pid_t> pids;
        for (const auto& one : workers.status())
            pids.insert(one.pid);
        return pids;
    }

    WorkerProcesses workers;
    Server server;
    std::optional<Client> client;
};

}  // namespace

TEST_CASE("role: worker", "[.role]") {
    if (!is_worker_process()) SKIP(kOnlyStarted);
    serve_as_worker(functions());
}
TEST_CASE("role: worker that cannot start", "[.role]") {
    if (!is_worker_process()) SKIP(kOnlyStarted);
    std::_Exit(3);
}
TEST_CASE("role: worker that starts once", "[.role]") {
    if (!is_worker_process()) SKIP(kOnlyStarted);
    const char* mark = std::getenv("TEST_STARTED_ONCE");
    if (::access(mark, F_OK) == 0) std::_Exit(4);
    { std::ofstream made(mark); }
    serve_as_worker(functions());
}

TEST_CASE("calls run in all processes, with the values, defaults and errors of a plain server", "[processes]") {
    const Served served(3);
    std::set<pid_t> seen;
    for (int i = 0; i < 9; ++i)
        seen.insert(served->call<int>("pid"));
    CHECK(seen == served.pids());
    CHECK_FALSE(seen.contains(::getpid()));
    CHECK(served->call<int>("add", 1, 2) == 3);
    CHECK(served->call<int>("add", named("a", 5)) == 6);
    CHECK_THROWS_MATCHES(served->call<int>("add"), InvalidParams, MessageMatches(ContainsSubstring("parameter a")));
    CHECK_THROWS_MATCHES(served->call<int>("add", "x", 1), InvalidParams,
                         MessageMatches(ContainsSubstring("parameter a: expected")));
    CHECK_THROWS_MATCHES(served->call<int>("fail", 1), FunctionFailed,
                         MessageMatches(ContainsSubstring("std::out_of_range: no such thing")));
    const auto caller = served->call<std::vector<std::string>>("caller");
    CHECK(caller.at(0) == "uid:" + std::to_string(::getuid()));
    const Client in_session = served->new_session();
    CHECK_FALSE(in_session.call<std::vector<std::string>>("caller").at(1).empty());
    const int cached = served->call<int>("cached_pid", 1);
    for (int i = 0; i < 5; ++i)
        CHECK(served->call<int>("cached_pid", 1) == cached);
    Json known = Json::parse(served->discover());
    CHECK(std::none_of(known["methods"].begin(), known["methods"].end(),
                       [](const Json& method) { return method.dump().find("(caller)") != std::string::npos; }));
}

TEST_CASE("a process that dies costs its own call one error with the reason", "[processes]") {
    const Served served(2);
    struct Case {
        const char *how, *reason;
    };
    const auto [how, reason] = GENERATE(Case{"exit", "ended with exit status 7"}, Case{"SIGSEGV", "ended by SIGSEGV"},
                                        Case{"abort", "ended by SIGABRT"}, Case{"SIGKILL", "ended by SIGKILL"});
    CAPTURE(how);
    AsyncClient other(served.server.url());
    const TemporaryFolder folder;
    const std::string end = folder.file("end");
    auto goes_on = other.call<bool>("until_there", end);
    CHECK(eventually([&] { return served.workers.status()[0].calls + served.workers.status()[1].calls == 1; }));
    try {
        served->call<int>("die", how);
        FAIL("it did not die");
    } catch (const FunctionFailed& error) {
        CHECK(Json::parse(error.data())["type"] == "WorkerDied");
        CHECK_THAT(error.what(), ContainsSubstring(reason) && ContainsSubstring("worker process "));
    }
    { std::ofstream made(end); }
    CHECK(goes_on.get());
    for (int i = 0; i < 4; ++i)
        CHECK(served->call<int>("add", i, 1) == i + 1);
    CHECK(served.all_ready());
    std::size_t restarts = 0;
    for (const auto& one : served.workers.status())
        restarts += one.restarts;
    CHECK(restarts == 1);
}

TEST_CASE("calls wait while the only process starts again", "[processes]") {
    const Served served(1);
    for (int round = 0; round < 3; ++round) {
        const int before = served->call<int>("pid");
        CHECK_THROWS_AS(served->call<int>("die", "exit"), FunctionFailed);
        const int after = served->call<int>("pid");
        CHECK(after != before);
    }
}

TEST_CASE("processes that cannot start are an error, of start() or of calls", "[processes]") {
    CHECK_THROWS_MATCHES(Served(2, on_any_port(), "worker that cannot start"), std::runtime_error,
                         MessageMatches(ContainsSubstring("exit status 3")));
    WorkerProcesses missing({.processes = 1, .command = {"/no/such/program"}});
    CHECK_THROWS_MATCHES(missing.start(), std::runtime_error, MessageMatches(ContainsSubstring("/no/such/program")));
    CHECK_THROWS_AS(WorkerProcesses({.processes = 0, .command = {"x"}}), std::invalid_argument);
    CHECK_THROWS_AS(WorkerProcesses({.processes = 1, .command = {}}), std::invalid_argument);
    WorkerProcesses late({.processes = 1, .command = {"/bin/sleep", "1000"}, .start_timeout = 50ms});
    CHECK_THROWS_MATCHES(late.start(), std::runtime_error, MessageMatches(ContainsSubstring("not ready in time")));
    CHECK_THROWS_AS(serve_as_worker(functions()), std::logic_error);

    const TemporaryFolder folder;
    ::setenv("TEST_STARTED_ONCE", folder.file("mark").c_str(), 1);
    const Served once(1, on_any_port(), "worker that starts once");
    CHECK_THROWS_AS(once->call<int>("die", "exit"), FunctionFailed);
    CHECK_THROWS_MATCHES(
        once->call<int>("pid"), FunctionFailed,
        MessageMatches(ContainsSubstring("no worker process can be started") && ContainsSubstring("exit status 4")));
}

TEST_CASE("tensors keep their bytes, and a dead process's result stays readable", "[processes]") {
    const Served served(1);
    const TensorRef x = numbers(1 << 20);
    const TensorRef back = served->call<TensorRef>("same", x);
    CHECK(identical(back, x));
    CHECK(identical(served->call<TensorRef>("same", numbers(3)), numbers(3)));
    CHECK_THROWS_AS(served->call<int>("die", "SIGKILL"), FunctionFailed);
    CHECK(identical(back, x));
}

TEST_CASE("streams pass in both directions", "[processes]") {
    const Served served(2);
    auto call = served->stream<int>("sums");
    auto numbers_in = call.writer<int>("numbers");
    auto sums = call.reader<int>("sums");
    for (int i = 1; i <= 5; ++i) {
        CHECK(numbers_in.write(i));
        CHECK(sums.next() == i * (i + 1) / 2);
    }
    numbers_in.end();
    CHECK_FALSE(sums.next().has_value());
    CHECK(call.result() == 15);

    const TensorRef x = numbers(100'000);
    auto copies = served->stream("twice", named("arg1", x));
    auto reader = copies.reader<TensorRef>();
    for (int i = 0; i < 2; ++i) {
        const auto item = reader.next();
        REQUIRE(item.has_value());
        CHECK(identical(*item, x));
    }
    CHECK_FALSE(reader.next().has_value());

    auto left = served->stream<int>("sums");  // its input never ends
    left.cancel();
    CHECK_THROWS_AS(left.result(), Cancelled);
    CHECK(eventually([&] {
        const auto all = served.workers.status();
        return std::all_of(all.begin(), all.end(), [](const auto& one) { return one.calls == 0; });
    }));
}

TEST_CASE("a failure ends all streams of a call, and the server goes on", "[processes]") {
    const Served served(1);
    for (const std::string end : {"throw", "die", "cancel"}) {
        CAPTURE(end);
        auto call = served->stream<int>("two_streams", named("arg2", end));
        auto first = call.reader<int>("arg0"), second = call.reader<int>("arg1");
        if (end == "cancel") {
            CHECK(first.next() == 0);
            call.cancel();
        }
        CHECK_THROWS_AS(call.result(), RpcError);
    }
    CHECK(served->call<int>("add", 1, 2) == 3);
}

TEST_CASE("a caller that reads no further gets the result", "[processes]") {
    const Served served(1);
    auto call = served->stream<int>("two_streams", named("arg2", std::string()));
    {
        auto first = call.reader<int>("arg0"), second = call.reader<int>("arg1");
        CHECK(first.next() == 0);
        CHECK(second.next() == 0);
    }
    CHECK(call.result() == 7);
}

TEST_CASE("deadlines are those of the callers, and functions are told them", "[processes]") {
    const Served served(1);
    const double left = served->with({.timeout = 20s}).call<double>("time_left");
    CHECK((left > 10 && left < 20.1));
    AsyncClient clients(served.server.url());
    auto patient = clients.call<bool>("cached_slow", 1);
    CHECK_THROWS_AS(served->with({.timeout = 200ms}).call<bool>("cached_slow", 1), DeadlineExceeded);
    CHECK(patient.get());
    const int before = served->call<int>("inline_pid");
    CHECK_THROWS_AS(served->call<int>("die", "exit"), FunctionFailed);
    CHECK(served->call<int>("inline_pid") != before);
}

TEST_CASE("a call keeps its place among those of its function until its code has ended", "[processes]") {
    const Served served(1);
    CHECK_THROWS_AS(served->with({.timeout = 100ms}).call<int>("alone", 1000), DeadlineExceeded);
    CHECK(served->call<int>("alone", 1) == 1);

    auto left = served->stream("write_alone", named("milliseconds", 15'000));
    CHECK(left.reader<int>("numbers").next() == 1);
    left.cancel();
    CHECK_THROWS_AS(served->stream("write_alone", named("milliseconds", 1)).result(), ServerBusy);
}

TEST_CASE("a call ends in its process at its deadline, with its caller, and when an operator cancels it",
          "[processes]") {
    const Served served(1);
    const std::string nap = R"({"jsonrpc":"2.0","method":"nap","params":[],"id":1})";
    const auto ended = [&](int naps) { return eventually([&] { return served->call<int>("ended_naps") == naps; }); };
    const auto running = [&](int calls) {
        return eventually([&] { return served->call<nlohmann::json>("server.calls")["total"] == calls; });
    };
    const int port = served.server.port();
    const HttpReply late = http_request(port, "POST", "/jsonrpc", nap, {{"Request-Timeout", "2000"}});
    CHECK_THAT(late.body, ContainsSubstring("-32002") && ContainsSubstring("Request-Timeout"));
    CHECK((ended(1) && running(0)));
    {
        HttpPeer leaves(port);
        leaves.request("POST", "/jsonrpc", nap);
        CHECK(running(1));
    }
    CHECK((ended(2) && running(0)));
    HttpPeer cancelled(port);
    cancelled.request("POST", "/jsonrpc", nap);
    CHECK(running(1));
    const auto calls = served->call<nlohmann::json>("server.calls")["calls"];
    served->call<nlohmann::json>("server.cancel_call", calls.at(0)["id"].get<std::string>());
    CHECK_THAT(cancelled.read().body, ContainsSubstring("-32004"));
    CHECK(ended(3));
}

TEST_CASE("a call does not wait for a process beyond its deadline", "[processes]") {
    const Served served(1, on_any_port(), "worker", 30s);
    CHECK_THROWS_AS(served->call<int>("die", "exit"), FunctionFailed);
    const HttpReply late =
        http_request(served.server.port(), "POST", "/jsonrpc", R"({"jsonrpc":"2.0","method":"pid","params":[],"id":1})",
                     {{"Request-Timeout", "100"}});
    CHECK_THAT(late.body, ContainsSubstring("-32002"));
    CHECK_FALSE(served.workers.status().front().ready);
}

TEST_CASE("tasks report progress and are cancelled in the process", "[processes]") {
    const Served served(1);
    auto task = served->submit<std::string>(GENERATE("slow", "slow_task"), 75);
    std::vector<double> fractions;
    task.on_progress([&](const TaskStatus& status) {
        if (status.fraction) fractions.push_back(*status.fraction);
    });
    CHECK(task.get() == task.id());
    CHECK(fractions.size() > 1);
    CHECK(std::is_sorted(fractions.begin(), fractions.end()));

    const auto long_one = served->submit<std::string>("slow", 100'000);
    CHECK(eventually([&] { return long_one.status().state == TaskState::running; }));
    long_one.cancel();
    CHECK(eventually([&] { return served.workers.status()[0].calls == 0; }));
    CHECK_THROWS_AS(served->with({.timeout = 100ms}).call<std::string>("slow", 100'000), DeadlineExceeded);
    CHECK(eventually([&] { return served.workers.status()[0].calls == 0; }));
}

TEST_CASE("a process that hangs does not delay the cancellation of a task in another process", "[processes]") {
    const Served served(2);
    const auto calls_of = [&](pid_t pid) {
        const auto all = served.workers.status();
        return std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.pid == pid; })->calls;
    };
    const auto first = served->submit<std::string>("slow", 100'000);
    CHECK(eventually([&] { return first.status().state == TaskState::running; }));
    REQUIRE(eventually([&] { return served.workers.status()[0].calls + served.workers.status()[1].calls == 1; }));
    pid_t hanging = 0, other = 0;
    for (const pid_t pid : served.pids())
        (calls_of(pid) == 1 ? hanging : other) = pid;
    REQUIRE((hanging != 0 && other != 0));
    const auto second = served->submit<std::string>("slow", 100'000);
    CHECK(eventually([&] { return calls_of(other) == 1; }));

    ::kill(hanging, SIGSTOP);
    first.cancel();
    const auto start = std::chrono::steady_clock::now();
    second.cancel();
    CHECK(eventually([&] { return calls_of(other) == 0; }));
    CHECK(std::chrono::steady_clock::now() - start < 8s);  // the hanging process is given 10 s to answer
    ::kill(hanging, SIGCONT);
    CHECK(eventually([&] { return calls_of(hanging) == 0; }));
}

TEST_CASE("objects stay in their process, and are lost with it", "[processes]") {
    const Served served(2);
    const auto tally = served->call<Object>("make_tally");
    const auto other = served->call<Object>("make_tally");
    const int home = served->call<int>("where", tally);
    CHECK(served->call<int>("where", other) != home);
    for (int i = 1; i <= 5; ++i) {
        CHECK(served->call<int>("count_up", tally, 1) == i);
        CHECK(served->call<int>("where", tally) == home);
    }
    ::kill(home, SIGKILL);
    CHECK(eventually([&] { return !served.pids().contains(home); }));
    CHECK_THROWS_MATCHES(
        served->call<int>("where", tally), FunctionFailed,
        MessageMatches(ContainsSubstring("the object that it had is lost") && ContainsSubstring("SIGKILL")));
    CHECK(served->call<int>("count_up", other, 2) == 2);
}

TEST_CASE("principals are apart in the processes too", "[processes]") {
    ServerOptions options = on_any_port();
    options.tokens = {{.name = "one", .secret = "secret of the first"},
                      {.name = "two", .secret = "secret of the other"}};
    const Served served(1, options);
    for (const auto& token : options.tokens) {
        ClientOptions mine;
        mine.url = served.server.url();
        mine.token = token.secret;
        const Client client(mine);
        CHECK(client.call<std::vector<std::string>>("caller").at(0) == "token:" + token.name);
        CHECK(identical(client.call<TensorRef>("same", numbers(50'000)), numbers(50'000)));
    }
}

TEST_CASE("the processes end with their server, also when it is killed", "[processes]") {
    std::set<pid_t> pids;
    {
        const Served served(2);
        pids = served.pids();
        for (const pid_t pid : pids) {
            ::kill(pid, SIGTERM);  // as a terminal or a service manager sends it to all
            ::kill(pid, SIGINT);
        }
        CHECK(served->call<int>("add", 1, 1) == 2);
        CHECK(served.pids() == pids);
    }
    for (const pid_t pid : pids)
        CHECK(::kill(pid, 0) != 0);
}
