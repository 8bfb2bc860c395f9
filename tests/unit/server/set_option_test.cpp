#include <shared_tensor/server_options.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <set>
#include <stdexcept>

#include "base/bytes/nearest_name.hpp"
#include "server/option_table.hpp"

using namespace shared_tensor;
using server::Option;

namespace {

/// A value that is not the default of any option of this type.
std::string another_value(const Option& option) {
    struct Value {
        std::string operator()(Option::Text) const { return "/another"; }
        std::string operator()(Option::List) const { return "another"; }
        std::string operator()(Option::Flag value) const { return *value ? "off" : "on"; }
        std::string operator()(Option::Count count) const { return std::to_string(*count.value + 1); }
        std::string operator()(Option::Integer number) const { return std::to_string(*number.value + 1); }
        std::string operator()(Option::Bytes) const { return "12345"; }
        std::string operator()(Option::Time) const { return "12345ms"; }
    };
    return std::visit(Value(), option.value);
}

std::string rejection(std::string_view name, std::string_view value) {
    ServerOptions options;
    try {
        set_option(options, name, value);
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return {};
}

struct Variable {
    Variable(const char* variable, const char* value) : name(variable) { ::setenv(variable, value, 1); }
    ~Variable() { ::unsetenv(name); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    const char* name;
};

}  // namespace

TEST_CASE("set_option sets each option of the table by its name, and no other one", "[server]") {
    ServerOptions defaults;
    const auto unchanged = server::option_table(defaults);
    for (const char separator : {'-', '_'}) {
        for (const Option& row : unchanged) {
            ServerOptions options;
            std::string name(row.name);
            std::replace(name.begin(), name.end(), '-', separator);
            set_option(options, name, another_value(row));
            const auto changed = server::option_table(options);
            for (std::size_t i = 0; i < changed.size(); ++i) {
                INFO(name << " and " << changed[i].name);
                CHECK((changed[i].show() != unchanged[i].show()) == (changed[i].name == row.name));
            }
        }
    }
}

TEST_CASE("The description of each option has its name and a default that it takes", "[server]") {
    ServerOptions options;
    const auto table = server::option_table(options);
    const auto all = list_server_options();
    REQUIRE(all.size() == table.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        INFO(all[i].name);
        CHECK(all[i].name == table[i].name);
        CHECK(all[i].form.empty() == table[i].is_flag());
        const auto before = table[i].show();
        if (!all[i].is_list) set_option(options, all[i].name, all[i].default_value);
        CHECK(table[i].show() == before);
    }
}

TEST_CASE("A list gets one more item with each call", "[server]") {
    ServerOptions options;
    set_option(options, "allowed-host", "a");
    set_option(options, "allowed_host", "b,c");
    CHECK(options.allowed_hosts == std::vector<std::string>{"a", "b,c"});
}

TEST_CASE("A size is in bytes or in powers of 1024", "[server]") {
    for (const auto& [text, size] :
         std::initializer_list<std::pair<const char*, std::size_t>>{{"1073741824", std::size_t{1} << 30},
                                                                    {"12638251008", 12'638'251'008},
                                                                    {"1G", std::size_t{1} << 30},
                                                                    {"1GiB", std::size_t{1} << 30},
                                                                    {"64KiB", 65536},
                                                                    {"3M", 3 << 20}}) {
        ServerOptions options;
        set_option(options, "max-kept-bytes", text);
        CHECK(options.leases.max_kept_bytes == size);
    }
    for (const char* text : {"", "1GB", "1iB", "GiB", "1.5G", "-1", "1 G", "1Gi"}) {
        INFO(text);
        CHECK(!rejection("max-kept-bytes", text).empty());
    }
}

TEST_CASE("A bad value or an unknown name is rejected with the name as it was given", "[server]") {
    CHECK(rejection("max_tasks", "0") == "max_tasks: must be an integer from 1 to 1000000, not \"0\"");
    CHECK(rejection("max-wait", "30") ==
          "max-wait: must be a time such as 500ms, 30s, 5m or 1h, not \"30\": write 30s for seconds, 30ms for "
          "milliseconds");
    CHECK(rejection("cache", "maybe") == "cache: must be true or false, not \"maybe\"");
    CHECK(rejection("max_taks", "1") ==
          "max_taks: no such option; the nearest is max-tasks; docs/options.md lists the options");
    CHECK(rejection("tls-cert", "x").find("the nearest is tls-certificate;") != std::string::npos);
    CHECK(rejection("qqqqqqqq", "1") == "qqqqqqqq: no such option; docs/options.md lists the options");
    CHECK(!rejection("", "1").empty());
    CHECK(!rejection("log-level", "info").empty());  // the daemon's alone
}

TEST_CASE("Options in the environment are found by the names of their variables", "[server]") {
    const Variable tasks("SHARED_TENSOR_MAX_TASKS", "7"), hosts("SHARED_TENSOR_ALLOWED_HOST", "a, b"),
        empty("SHARED_TENSOR_CACHE", "");
    const auto found = options_in_environment();
    const std::set<std::pair<std::string, std::string>> set(found.begin(), found.end());
    CHECK(set.contains({"max-tasks", "7"}));
    CHECK(set.contains({"allowed-host", "a"}));
    CHECK(set.contains({"allowed-host", "b"}));
    CHECK(std::none_of(found.begin(), found.end(), [](const auto& one) { return one.first == "cache"; }));

    const Variable bad("SHARED_TENSOR_MAX_WAIT", "5");
    CHECK_THROWS_WITH(options_in_environment(), Catch::Matchers::StartsWith("SHARED_TENSOR_MAX_WAIT: must be a time"));
}

TEST_CASE("The nearest name contains the word, or differs from it by the fewest characters", "[server]") {
    constexpr std::string_view kNames[] = {"max-tasks", "max-task-bytes", "queue", "tls-key", "tls-certificate"};
    for (const auto& [word, nearest] :
         std::initializer_list<std::pair<std::string_view, std::string_view>>{{"max-taks", "max-tasks"},
                                                                              {"tasks", "max-tasks"},
                                                                              {"max-task-byte", "max-task-bytes"},
                                                                              {"tls-cert", "tls-certificate"},
                                                                              {"quue", "queue"},
                                                                              {"zzzz", ""},
                                                                              {"", ""}}) {
        INFO(word);
        CHECK(nearest_name(word, kNames) == nearest);
    }
    CHECK(edit_distance("kitten", "sitting") == 3);
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("abc", "abc") == 0);
}
