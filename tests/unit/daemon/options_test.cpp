// The options of the daemon, as the table, the help and docs/options.md have them.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "program.hpp"
#include "server/option_reading.hpp"
#include "support/temporary_folder.hpp"

using namespace shared_tensor;
using server::Option;

namespace {

const std::string kPage = SHARED_TENSOR_SOURCE_DIR "/docs/options.md";

std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// The tables of docs/options.md: what follows its introduction.
std::string tables() {
    daemon::DaemonOptions defaults;
    std::ostringstream page;
    std::string section;
    for (const Option& option : daemon::option_table(defaults)) {
        if (section != option.section)
            page << "\n## " << option.section
                 << "\n\n| option | default | meaning | `ServerOptions` |\n|---|---|---|---|\n";
        section = option.section;
        const std::string shown = server::default_text(option);
        page << "| `--" << option.name << "` | " << (shown.empty() ? "" : '`' + shown + '`') << " | " << option.help
             << " | " << (option.member.empty() ? "" : '`' + std::string(option.member) + '`') << " |\n";
    }
    return page.str();
}

std::string introduction() {
    const std::string page = read(kPage);
    return page.substr(0, page.find("\n## "));
}

/// Gives every option a value other than its default.
struct Change {
    void operator()(Option::Text value) const { value->append(" changed"); }
    void operator()(Option::List value) const { *value = {"a,b", "c d", ""}; }
    void operator()(Option::Flag value) const { *value = !*value; }
    void operator()(Option::Count count) const { *count.value = count.most; }
    void operator()(Option::Integer number) const { *number.value = number.most; }
    void operator()(Option::Bytes bytes) const { *bytes.value = 12'345; }
    void operator()(Option::Time value) const { *value = std::chrono::milliseconds(7); }
};

std::vector<json_rpc::Json> values_of(daemon::DaemonOptions& options) {
    std::vector<json_rpc::Json> values;
    for (const Option& option : daemon::option_table(options))
        values.push_back(option.show());
    return values;
}

}  // namespace

TEST_CASE("docs/options.md lists the options as they are (unit_tests \"write docs/options.md\" writes it)",
          "[daemon]") {
    CHECK(read(kPage) == introduction() + tables());
}

TEST_CASE("write docs/options.md", "[.]") {
    const std::string text = introduction() + tables();
    std::ofstream(kPage) << text;
}

TEST_CASE("what the documents name as a limit of the daemon is an option", "[daemon]") {
    daemon::DaemonOptions defaults;
    std::set<std::string> names;
    for (const Option& option : daemon::option_table(defaults))
        names.insert("--" + std::string(option.name));
    const std::regex limit(
        "--(max|min|idempotency|session|object|task|upload|lease|header|body|idle|write|stream)-[a-z-]+");
    for (const auto& file : std::filesystem::directory_iterator(SHARED_TENSOR_SOURCE_DIR "/docs")) {
        if (file.path().extension() != ".md") continue;
        const std::string text = read(file.path());
        for (std::sregex_iterator at(text.begin(), text.end(), limit), end; at != end; ++at) {
            INFO(file.path() << ": " << at->str());
            CHECK(names.contains(at->str()));
        }
    }
}

TEST_CASE("each option has a name of its own, an explanation, and a default that it takes", "[daemon]") {
    daemon::DaemonOptions options;
    std::set<std::string_view> names;
    for (const Option& option : daemon::option_table(options)) {
        INFO(option.name);
        CHECK(names.insert(option.name).second);
        CHECK_FALSE(option.help.empty());
        if (option.is_list()) continue;
        const auto before = option.show();
        option.set(server::default_text(option));
        CHECK(option.show() == before);
    }
}

TEST_CASE("every limit of server.info is that of an option", "[daemon]") {
    ServerOptions options;
    options.host = "127.0.0.1";
    options = server::in_force(options);
    std::set<std::string> names;
    daemon::DaemonOptions defaults;
    for (const Option& option : daemon::option_table(defaults))
        names.insert(std::string(option.name));
    const auto limits = server::limits_json(options);
    CHECK(limits.size() > 40);
    for (const auto& limit : limits.items()) {
        std::string name = limit.key();
        if (name.ends_with("_ms")) name.resize(name.size() - 3);
        if (name == "call_timeout") name = "timeout";
        std::replace(name.begin(), name.end(), '_', '-');
        INFO(limit.key());
        CHECK(names.contains(name));
        CHECK(limit.value() > 0);
    }
}

TEST_CASE("options in force: what depends on the machine has its value, what was given stays", "[daemon]") {
    ServerOptions wanted;
    wanted.names.max_bytes = 1'000;
    wanted.calls.pool.workers = 3;
    const ServerOptions options = server::in_force(wanted);
    CHECK(options.names.max_bytes == 1'000);
    CHECK(options.calls.pool.workers == 3);
    CHECK(options.uploads.max_bytes > 0);
    CHECK(options.leases.max_kept_bytes == options.uploads.max_bytes);
    CHECK(options.shared_memory.max_bytes >= 2 * options.uploads.max_bytes);
    CHECK(options.http.max_bytes_in_flight == options.uploads.max_bytes);
    CHECK(options.torch_threads > 0);
    CHECK(options.shared_memory.max_segments > 0);
    wanted.host.clear();
    CHECK_THROWS_AS(server::in_force(wanted), std::invalid_argument);
}

TEST_CASE("server.options names the origin of each value: flag, environment, file, program or default", "[daemon]") {
    const test::TemporaryFolder folder;
    std::ofstream(folder.path() + "/config.toml") << "max-sessions = 5\nqueue = 6\nmax-wait = \"7s\"\n";
    ::setenv("SHARED_TENSOR_QUEUE", "60", 1);
    ::setenv("SHARED_TENSOR_MAX_WAIT", "70s", 1);
    const std::string config = folder.path() + "/config.toml";
    std::vector<std::string> words{"shared-tensor-server", "--config", config, "--max-wait", "2s",
                                   "--no-cache",           "--load",   "a.so"};
    std::vector<char*> arguments;
    for (std::string& word : words)
        arguments.push_back(word.data());
    auto options = daemon::parse_options(static_cast<int>(words.size()), arguments.data()).options.server;
    ::unsetenv("SHARED_TENSOR_QUEUE");
    ::unsetenv("SHARED_TENSOR_MAX_WAIT");
    options.max_wait = std::chrono::seconds(3);  // has an origin already
    options.objects.max_handles = 1'234;         // a program set it
    std::map<std::string, json_rpc::Json> by_name;
    for (const auto& one : server::describe_options(server::in_force(options)))
        by_name[one["name"]] = one;
    const auto origin = [&](const char* name) { return by_name.at(name).at("origin").get<std::string>(); };
    CHECK(origin("max-sessions") == config + ", line 1");
    CHECK(origin("queue") == "SHARED_TENSOR_QUEUE");
    CHECK(origin("max-wait") == "--max-wait");
    CHECK(origin("cache") == "--no-cache");
    CHECK(origin("max-objects") == "program");
    CHECK(origin("max-tasks") == "default");
    CHECK(origin("load") == "--load");
    CHECK(by_name.at("load").at("value") == R"(["a.so"])");
    CHECK(by_name.at("queue").at("value") == 60);
    CHECK(by_name.at("queue").at("default") == 1024);
}

TEST_CASE("the help of the common options fits on two screens", "[daemon]") {
    daemon::DaemonOptions defaults;
    const auto table = daemon::option_table(defaults);
    for (const bool all : {false, true}) {
        std::istringstream text(daemon::help_text(table, all));
        std::size_t lines = 0;
        for (std::string line; std::getline(text, line); ++lines) {
            INFO(line);
            CHECK(line.size() <= 100);
        }
        if (!all) CHECK(lines <= 50);
    }
}

TEST_CASE("a worker process gets its group and every option of the server", "[daemon]") {
    const daemon::PluginGroup group{"--processes", {"a b.so", "c,\"d\".so"}, 3, 1'000, 64};
    daemon::DaemonOptions defaults, changed;
    for (const Option& option : daemon::option_table(changed))
        std::visit(Change(), option.value);
    for (daemon::DaemonOptions* options : {&defaults, &changed}) {
        daemon::WorkerStart start = daemon::read_worker_start(daemon::write_worker_start(group, *options));
        CHECK(values_of(start.options) == values_of(*options));
        CHECK(start.group.name == group.name);
        CHECK(start.group.paths == group.paths);
        CHECK(start.group.processes == group.processes);
        CHECK(start.group.memory == group.memory);
        CHECK(start.group.files == group.files);
    }
    changed.server.token_file = "\xff";  // a path that is no UTF-8
    CHECK_NOTHROW(daemon::read_worker_start(daemon::write_worker_start(group, changed)));
}
