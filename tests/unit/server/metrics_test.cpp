// What is between the counters of a server and the text of /metrics: labels, their limits, the text itself.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <shared_tensor/registry.hpp>

#include "server/metrics/collect.hpp"
#include "server/metrics/operations.hpp"
#include "server/metrics/page.hpp"

using namespace shared_tensor;
using namespace shared_tensor::server;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kNoCharacter = "\xEF\xBF\xBD";  // U+FFFD

/// Functions that are added one after another, with so many calls each.
struct Functions {
    void add(const char* name, int calls) {
        Registry registry;
        registry.add(name, [] { return 1; });
        table.replace({}, registry.functions());
        for (int i = 0; i < calls; ++i)
            table.find(name)->run_time->calls.count(0);
    }
    std::vector<std::pair<std::string, std::uint64_t>> ok_calls(std::size_t most) const {
        std::vector<std::pair<std::string, std::uint64_t>> all;
        for (const FunctionCalls& one : calls_by_function(table.all(), most))
            all.emplace_back(one.function, one.outcomes.front());
        return all;
    }
    runtime::FunctionTable table{Registry()};
};
using Calls = std::vector<std::pair<std::string, std::uint64_t>>;

}  // namespace

TEST_CASE("the value of a label is valid, printable and short, whatever the text", "[server][metrics]") {
    struct Case {
        std::string text, value;
    };
    for (const Case& one : std::initializer_list<Case>{
             {"uid:1000", "uid:1000"},
             {"", ""},
             {"token:\xC3\xA9t\xC3\xA9 \"x\" \\", "token:\xC3\xA9t\xC3\xA9 \"x\" \\"},  // the page escapes them
             {"a\nb\rc\td", "a" + kNoCharacter + "b" + kNoCharacter + "c" + kNoCharacter + "d"},
             {std::string("a\0b\x7F", 4), "a" + kNoCharacter + "b" + kNoCharacter},
             {"\xFF\xC3(", kNoCharacter + kNoCharacter + "("},
             {"\xED\xA0\x80", kNoCharacter + kNoCharacter + kNoCharacter},  // a surrogate
             {std::string(200, 'x'), std::string(200, 'x')},
             {std::string(201, 'x'), std::string(200, 'x')},
             {std::string(199, 'x') + "\xC3\xA9", std::string(199, 'x')},  // no half of a character
         }) {
        INFO(one.text);
        CHECK(label_value(one.text) == one.value);
    }
}

TEST_CASE("the page is text of Prometheus, with labels escaped", "[server][metrics]") {
    MetricsPage page;
    page.counter("calls_total", "All calls.");
    page.add(3, {{"function", "a\"b\\c"}, {"outcome", "ok"}});
    page.gauge("queue_depth", "Waiting.");
    page.add(0.5);
    CHECK(page.text() ==
          "# HELP shared_tensor_calls_total All calls.\n"
          "# TYPE shared_tensor_calls_total counter\n"
          "shared_tensor_calls_total{function=\"a\\\"b\\\\c\",outcome=\"ok\"} 3\n"
          "# HELP shared_tensor_queue_depth Waiting.\n"
          "# TYPE shared_tensor_queue_depth gauge\n"
          "shared_tensor_queue_depth 0.5\n");
}

TEST_CASE("the buckets of a histogram count up", "[server][metrics]") {
    runtime::DurationBuckets durations;
    for (const int us : {1, 10, 10, 100'000'000})
        durations.record(std::chrono::microseconds(us));
    MetricsPage page;
    page.histogram("call_seconds", "Durations.");
    page.add(durations.read(), {{"function", "f"}});
    const std::string text = page.text(), bucket = "shared_tensor_call_seconds_bucket{function=\"f\",le=\"";
    for (const char* line : {"8.192000000000001e-06\"} 1\n", "1.6384e-05\"} 3\n", "34.359738368\"} 3\n", "+Inf\"} 4\n"})
        CHECK_THAT(text, ContainsSubstring(bucket + line));
    CHECK_THAT(text, ContainsSubstring("_count{function=\"f\"} 4\n"));
    CHECK_THAT(text, ContainsSubstring("_sum{function=\"f\"} 100.00002"));
}

TEST_CASE("functions beyond the limit share a label; the first ones that were added keep theirs", "[server][metrics]") {
    Functions functions;
    functions.add("z", 1);
    functions.add("y", 2);
    CHECK(functions.ok_calls(2) == Calls{{"z", 1}, {"y", 2}});
    functions.add("a", 4);
    functions.add("b", 8);
    CHECK(functions.ok_calls(2) == Calls{{"z", 1}, {"y", 2}, {"(other)", 12}});
    CHECK(functions.ok_calls(4).size() == 4);
    functions.table.replace({functions.table.find("z")->shared}, {});
    CHECK(functions.ok_calls(2) == Calls{{"y", 2}, {"a", 4}, {"(other)", 8}});
}

TEST_CASE("clients with the most bytes keep their label, the others share one", "[server][metrics]") {
    const LeaseSums sums{{{"a", "cpu"}, {1, 10}},
                         {{"b", "cpu"}, {2, 500}},
                         {{"b", "cuda:GPU-1"}, {1, 1}},
                         {{"c", "cpu"}, {3, 20}},
                         {{"d", "cuda:GPU-1"}, {4, 400}}};
    const auto bounded = bound_clients(sums, 2);
    std::vector<std::string> seen;
    for (const auto& [key, sum] : bounded)
        seen.push_back(key.first + ' ' + key.second + ' ' + std::to_string(sum.leases) + ' ' +
                       std::to_string(sum.bytes));
    CHECK(seen ==
          std::vector<std::string>{"(other) cpu 4 30", "b cpu 2 500", "b cuda:GPU-1 1 1", "d cuda:GPU-1 4 400"});
    CHECK(bound_clients(sums, 4).size() == 5);
    CHECK(bound_clients({}, 1).empty());
}

TEST_CASE("an address of operations is an address and a port", "[server][operations]") {
    struct Good {
        const char* text;
        const char* host;
        int port;
    };
    for (const Good& one : std::initializer_list<Good>{{"127.0.0.1:9464", "127.0.0.1", 9464},
                                                       {"localhost:0", "localhost", 0},
                                                       {"[::1]:65535", "::1", 65535},
                                                       {"0.0.0.0:80", "0.0.0.0", 80}}) {
        INFO(one.text);
        const ListenAddress address = ListenAddress::parse(one.text);
        CHECK(address.host == one.host);
        CHECK(address.port == one.port);
    }
    for (const char* text : {"", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:80",
                             "[::1]", "[127.0.0.1]:80", "127.0.0.1:-1", "127.0.0.1:+1"}) {
        INFO(text);
        CHECK_THROWS_WITH(ListenAddress::parse(text),
                          ContainsSubstring("give an address and a port, such as 127.0.0.1:9464"));
    }
}
