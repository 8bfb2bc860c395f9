// How the daemon is configured, and how it says why it cannot start.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <sstream>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

Json configured(const Words& options, const Words& variables = {}) {
    const Ended ended = run_daemon(joined(options, {"--print-config"}), variables);
    INFO(ended.err);
    REQUIRE(ended.code == 0);
    std::ostringstream json;
    json << toml::json_formatter(toml::parse(ended.out));
    return Json::parse(json.str());
}

/// It ended with an exit code that is not 0, after one line that holds `word`, without having served.
std::string rejection(const Words& options, const std::string& word, const Words& variables = {}) {
    const Ended ended = run_daemon(joined({"--port", "0"}, options), variables);
    INFO((options.empty() ? "" : options.back()) << ": " << ended.err);
    CHECK(ended.code != 0);
    CHECK(ended.code < 128);
    CHECK(ended.out.empty());
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
    CHECK(ended.err.find(word) != std::string::npos);
    return ended.err;
}

}  // namespace

TEST_CASE("a flag wins over the environment, that over the file, that over the default", "[server]") {
    TemporaryFolder folder;
    const std::string file = folder.write("c.toml", "queue = 3\ntimeout = \"3s\"\ncache = false\nworkers = 3\n");
    const Words environment{"SHARED_TENSOR_QUEUE=2", "SHARED_TENSOR_TIMEOUT=2s"};
    const Json config = configured({"--config", file, "--queue", "1"}, environment);
    CHECK(config["queue"] == 1);
    CHECK(config["timeout"] == "2000ms");
    CHECK(config["cache"] == false);
    CHECK(config["workers"] == 3);
    CHECK(config["max-json-depth"] == 100);
    CHECK(configured({}, {"SHARED_TENSOR_CONFIG=" + file})["queue"] == 3);

    const std::string lists = folder.write("l.toml", "allowed-host = [\"a\", \"b\"]\nload = \"one.so\"\n");
    const Words hosts{"SHARED_TENSOR_ALLOWED_HOST=c,d"};
    CHECK(configured({"--config", lists})["allowed-host"] == Json{"a", "b"});
    CHECK(configured({"--config", lists})["load"] == Json{"one.so"});
    CHECK(configured({"--config", lists}, hosts)["allowed-host"] == Json{"c", "d"});
    CHECK(configured({"--config", lists, "--allowed-host", "e"}, hosts)["allowed-host"] == Json{"e"});

    const std::string secret(32, 's');
    CHECK(configured({"--token-file", folder.write("t", "me:" + secret)}).dump().find(secret) == std::string::npos);
}

TEST_CASE("The text of --print-config names the origin of each value, and is a file for --config", "[server]") {
    TemporaryFolder folder;
    const std::string file = folder.write("c.toml", "# mine\nworkers = 3\n");
    const Words options{"--config", file, "--queue=1", "--no-cache", "--print-config"};
    const std::string text = run_daemon(options, {"SHARED_TENSOR_TIMEOUT=2s"}).out;
    const auto origin_of = [&](const std::string& option) {
        const std::size_t line = ('\n' + text).find('\n' + option + " = ");
        const std::size_t comment = text.find("# ", line) + 2;
        return text.substr(comment, text.find('\n', comment) - comment);
    };
    CHECK(origin_of("queue") == "--queue");
    CHECK(origin_of("cache") == "--no-cache");
    CHECK(origin_of("timeout") == "SHARED_TENSOR_TIMEOUT");
    CHECK(origin_of("workers") == file + ", line 2");
    CHECK(origin_of("max-tasks") == "default");
    CHECK(configured({"--config", folder.write("again.toml", text)}) ==
          configured(options, {"SHARED_TENSOR_TIMEOUT=2s"}));
}

TEST_CASE("The option --check-config says whether a server would start with the options", "[server]") {
    TemporaryFolder folder;
    const Ended good = run_daemon({"--check-config", "--config", folder.write("c.toml", "workers = 3\n")});
    CHECK(good.code == 0);
    CHECK(good.out == "the configuration is good\n");
    CHECK(good.err.empty());
    rejection({"--check-config", "--config", folder.write("d.toml", "host = \"0.0.0.0\"\n")}, "token");
    rejection({"--check-config", "--config", "/dev/zero"}, "more than 1 MiB");
    rejection({"--check-config", "--token-file", "/nowhere"}, "/nowhere");
    rejection({"--check-config", "--load", "x.so?proceses=1"}, "the nearest is processes");
    rejection({"--check-config", "--model", "foo"}, "write name=path");
    rejection({"--check-config", "--config", folder.file("")}, "is a folder");
    rejection({"--check-config", "--unix-socket", "\xff.sock"}, "--unix-socket: the value is not UTF-8");
    rejection({"--check-config", "--unix-socket", "/tmp/" + std::string(103, 'x')}, "107 characters at most");
    rejection({"--check-config", "--allowed-origin", "https://example.org/"}, "with nothing after the port");
    for (const char* option : {"timeout", "task-ttl", "max-json-bytes", "max-reply-json-bytes", "idle-timeout"})
        rejection({"--check-config", "--" + std::string(option), "0"}, option + std::string(" must be more than 0"));
    CHECK(run_daemon({"--check-config", "--port", "0", "--access-log", folder.file("log")}, {"RANK=abc"}).code == 0);
    CHECK_FALSE(std::filesystem::exists(folder.file("log")));
}

TEST_CASE("A start that fails leaves no ready file of a server that was killed", "[server]") {
    TemporaryFolder folder;
    const std::string ready = folder.write("ready", "http://127.0.0.1:1");
    rejection({"--port", "0", "--ready-file", ready, "--load", "/nowhere.so"}, "/nowhere.so");
    CHECK_FALSE(std::filesystem::exists(ready));
}

TEST_CASE("A comma on the command line is a part of the value", "[server]") {
    const std::string text =
        run_daemon({"--load", "a,b.so", "--load", "c.so", "--no-cache=false", "--print-config"}).out;
    CHECK_THAT(text, ContainsSubstring(R"(load = ["a,b.so","c.so"])") && ContainsSubstring("cache = true"));
}

TEST_CASE("SIGHUP changes the level of the log, and names the options that need a restart", "[server]") {
    TemporaryFolder folder;
    const std::string file = folder.write("c.toml", "queue = 3\n");
    Daemon daemon({"--config", file, "--load", kExamplePlugin});
    const auto reload = [&](const std::string& text) {
        folder.write("c.toml", text);
        daemon.child().signal(SIGHUP);
    };
    reload("queue = 4\nlog-level = \"debug\"\n");
    CHECK(eventually([&] { return daemon.logs("the log's level is debug"); }));
    CHECK(daemon.logs("--queue is 4 now, but this needs a restart"));
    CHECK_FALSE(daemon.logs("--load"));
    reload("queue = many\n");
    CHECK(eventually([&] { return daemon.logs("the options were not read again: " + file + ", line 1: "); }));
    CHECK(call(daemon.port(), "server.info")["limits"]["queue"] == 3);
    CHECK(daemon.stop() == 0);
}

TEST_CASE("switches are turned on and off, and the default port is 2537 plus the rank", "[server]") {
    struct Case {
        Words options, variables;
        const char* name;
        Json value;
    };
    for (const Case& one : std::initializer_list<Case>{
             {{}, {}, "cache", true},
             {{"--no-cache"}, {}, "cache", false},
             {{"--cache"}, {"SHARED_TENSOR_CACHE=0"}, "cache", true},
             {{}, {"SHARED_TENSOR_CACHE=off"}, "cache", false},
             {{}, {}, "port", 2537},
             {{}, {"RANK=2"}, "port", 2539},
             {{}, {"LOCAL_RANK=3"}, "port", 2540},
             {{}, {"RANK=2", "LOCAL_RANK=3"}, "port", 2539},
             {{"--port", "9"}, {"RANK=2"}, "port", 9},
             {{}, {"RANK=2", "SHARED_TENSOR_PORT=9"}, "port", 9},
         })
        CHECK(configured(one.options, one.variables)[one.name] == one.value);
    for (const char* variable : {"RANK=abc", "RANK=-1", "LOCAL_RANK=1x", "RANK=99999"}) {
        const Ended ended = run_daemon({"--print-config"}, {variable});
        INFO(variable << ": " << ended.err);
        CHECK(ended.code == 1);
        CHECK_THAT(ended.err, ContainsSubstring("RANK"));
    }
}

TEST_CASE("What --print-config shows is in force, and server.info says the same", "[server]") {
    const Json config = configured({"--port", "0", "--max-tasks", "77"});
    CHECK(config["max-tasks"] == 77);
    for (const char* name : {"workers", "torch-threads", "max-bytes-in-flight", "max-shared-bytes", "max-segments",
                             "max-kept-bytes", "max-named-bytes", "max-upload-bytes"}) {
        INFO(name);
        CHECK(config[name] > 0);
    }
    const Daemon daemon({"--max-tasks", "77"});
    const Json limits = call(daemon.port(), "server.info")["limits"];
    CHECK(limits["max_tasks"] == 77);
    CHECK(limits["call_timeout_ms"] == 30'000);
    for (const char* name : {"max-kept-bytes", "max-named-bytes", "max-shared-bytes", "max-connections", "queue"}) {
        std::string key(name);
        std::replace(key.begin(), key.end(), '-', '_');
        INFO(name);
        CHECK(limits[key] == config[name]);
    }
    for (const auto& limit : limits.items()) {
        INFO(limit.key());
        CHECK(limit.value() > 0);  // 0 stands for a default that depends on the machine
    }
}

TEST_CASE(
    "The text of --help fits on two screens, and every option that --print-config shows is explained by --help-all",
    "[server]") {
    const std::string help = run_daemon({"--help"}).out, all = run_daemon({"--help-all"}).out;
    CHECK(std::count(help.begin(), help.end(), '\n') <= 50);
    std::istringstream lines(help + all);
    for (std::string line; std::getline(lines, line);) {
        INFO(line);
        CHECK(line.size() <= 100);
    }
    const Json config = configured({});
    for (const auto& [name, value] : config.items()) {
        INFO(name);
        CHECK((all.find("--" + name + ' ') != std::string::npos ||
               all.find("--[no-]" + name + ' ') != std::string::npos));
    }
    CHECK(help.find("--help-all") != std::string::npos);
    CHECK(run_daemon({"--version"}).out.starts_with("shared-tensor-server "));
}

TEST_CASE("a daemon that can't start says why in one line", "[server]") {
    TemporaryFolder folder;
    const std::string spec = SHARED_TENSOR_SPEC_PLUGIN, secret(32, 's');
    const std::string port = std::to_string(shared_daemon());
    struct Case {
        Words options;
        std::string word;
        Words variables = {};
    };
    for (const Case& one : std::initializer_list<Case>{
             // Plugins and models.
             {{"--load", "/nowhere/x.so"}, "/nowhere/x.so"},
             {{"--load", folder.write("text.so", "hello")}, "text.so"},
             {{"--load", SHARED_TENSOR_NOT_A_PLUGIN}, "not a shared_tensor plugin"},
             {{"--load", folder.write("open.so", text_of_file(spec), 0666)}, "may be written to by everybody"},
             {{"--load", "/tmp"}, "not a file"},
             {{"--model", "m=/nowhere/x.pt"}, "/nowhere/x.pt"},
             {{"--model", "m=" + folder.write("x.pt", "PK hello")}, "x.pt"},
             {{"--model", "x.pt"}, "name=path"},
             // Options, variables and files of options.
             {{"--prot", "1"}, "--prot: no such option; the nearest is port; --help-all lists the options"},
             {{"--max-taks=1"}, "--max-taks: no such option; the nearest is max-tasks"},
             {{"--log-levle", "info"}, "the nearest is log-level"},
             {{"-x"}, "-x: no such option; --help-all"},
             {{"--max-chunks", "10"}, "max-chunks"},
             {{"--max-chunks", "10"}, "--help-all"},
             {{"--workers", "many"}, "--workers"},
             {{"--port", "65536"}, "--port"},
             {{"--queue", "0"}, "--queue"},
             {{"--timeout", "5 parsecs"}, "--timeout"},
             {{"--timeout", "5"}, "--timeout: must be a time such as 500ms, 30s, 5m or 1h"},
             {{}, "SHARED_TENSOR_DRAIN_TIME", {"SHARED_TENSOR_DRAIN_TIME=5"}},
             {{"--config", folder.write("time.toml", "timeout = 5")}, "5s for seconds"},
             {{"start"}, "start"},
             {{}, "SHARED_TENSOR_QUEUE", {"SHARED_TENSOR_QUEUE=-1"}},
             {{"--config", "/nowhere.toml"}, "/nowhere.toml"},
             {{"--config", folder.write("text.toml", "queue = 1\nport: 1\n")}, "text.toml, line 2: not TOML"},
             {{"--config", folder.write("old.toml", R"({"port": 1})")}, "an option is a line such as port = 2537"},
             {{"--config", folder.write("table.toml", "[server]\nport = 1\n")}, "without tables"},
             {{"--config", folder.write("float.toml", "queue = 1.5\n")}, "float.toml, line 1: queue"},
             {{"--config", folder.write("word.toml", "prot = 1")}, "prot: no such option; the nearest is port"},
             {{"--log-level", "loud"}, "loud"},
             {{"--allowed-origin", "*"}, "origin"},
             {{"--compression", "lzma"}, "lzma"},
             {{"--compression-level", "10"}, "compression-level"},
             // Tokens.
             {{"--host", "0.0.0.0"}, "token"},
             {{"--token-file", folder.write("short", "me:secret\n")}, "16"},
             {{"--token-file", folder.write("open", "me:" + secret, 0644)}, "chmod 600"},
             {{"--token-file", folder.write("odd", "# mine\na:" + secret + ":typo")}, "odd, line 2: "},
             {{"--token-file", folder.write("twice", "a:" + secret + "\nb:" + secret)}, "twice, line 2: "},
             {{"--token-file", folder.write("name", "a:" + secret + "\na:" + std::string(32, 'b'))}, "already"},
             {{"--token-file", folder.write("text", "a:" + secret + "\nnonsense\n")}, "line 2"},
             {{"--token-file", folder.write("none", "a:" + secret + ":allow=")}, "allow="},
             {{"--token-file", folder.write("star", "a:" + secret + ":allow=a*b")}, "a * may only end one"},
             {{"--token-file", folder.write("empty", "# nobody\n")}, "no token"},
             // Addresses.
             {{"--host", "192.0.2.1", "--insecure"}, "192.0.2.1"},
             {{"--host", ""}, "listen"},
             {{"--port", port}, port},
         })
        CHECK(rejection(one.options, one.word, one.variables).find(secret) == std::string::npos);
    CHECK(Calls().serves());
}

TEST_CASE("a daemon that can't start says why at every level of the log, in both formats", "[server][log]") {
    for (const char* level : {"trace", "error", "off"}) {
        INFO(level);
        const Words options{"--load", "/nowhere/x.so", "--log-level", level};
        CHECK(rejection(options, "shared-tensor-server: plugin /nowhere/x.so: no such file\n").starts_with("shared"));
        const Json line = Json::parse(rejection(joined(options, {"--log-format", "json"}), "/nowhere/x.so"));
        CHECK(line["level"] == "error");
        CHECK(line["message"] == "plugin /nowhere/x.so: no such file");
        CHECK(line["time"].get<std::string>().size() == 24);
    }
}

TEST_CASE("a daemon does not start with two plugins that share one name, and names both", "[server][plugins]") {
    TemporaryFolder folder;
    const std::string spec = SHARED_TENSOR_SPEC_PLUGIN, copy = folder.write("x.so", text_of_file(spec));
    const std::string text = rejection({"--load", spec, "--load", copy}, "two functions");
    for (const std::string& word : {'(' + spec + ')', '(' + copy + ')', std::string("SHARE_AS")})
        CHECK(text.find(word) != std::string::npos);
}

TEST_CASE("a plugin that is cut off, wherever, is an error of one line", "[server][plugins]") {
    TemporaryFolder folder;
    const std::string whole = text_of_file(SHARED_TENSOR_SPEC_PLUGIN);
    REQUIRE(whole.size() > 100'000);
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{4096},
                                   whole.size() / 4, whole.size() / 2, whole.size() - 4096, whole.size() - 1}) {
        INFO(size);
        rejection({"--load", folder.write("x.so", whole.substr(0, size))},
                  size < 64 ? "not a shared library" : "cut off");
    }
    std::string hollow = whole;  // of that size, with nothing in it behind the first page: a copy to a full disk
    std::fill(hollow.begin() + 4096, hollow.end(), '\0');
    rejection({"--load", folder.write("x.so", hollow)}, "damaged");
}

TEST_CASE("a plugin whose manifest is damaged is an error of one line", "[server][plugins]") {
    for (const auto& [damage, word] :
         std::initializer_list<std::pair<const char*, const char*>>{{"no manifest", "no manifest"},
                                                                    {"wild manifest", "manifest is damaged"},
                                                                    {"no text", "manifest is damaged"},
                                                                    {"wild text", "manifest is damaged"},
                                                                    {"endless text", "manifest is damaged"},
                                                                    {"no records", "shares no function"},
                                                                    {"wild record", "list of functions"},
                                                                    {"no function", "list of functions"},
                                                                    {"circle", "list of functions"},
                                                                    {"another version", "ABI"},
                                                                    {"throws", "no licence found"},
                                                                    {"throws a number", "initialiser threw"}}) {
        INFO(damage);
        rejection({"--load", SHARED_TENSOR_BAD_PLUGIN}, word, {std::string("BAD_PLUGIN=") + damage});
    }
}
