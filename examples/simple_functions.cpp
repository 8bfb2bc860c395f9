// One program that shares functions, serves them and calls them: an example of your own server.
//
//     simple_functions
//
// Usually the three parts are separate: functions in a plugin, the server in shared-tensor-server, calls in clients.

#include <cstdio>
#include <exception>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/share.hpp>
#include <shared_tensor/struct.hpp>

namespace shop {

double mean(const std::vector<double>& values) {
    if (values.empty()) throw std::invalid_argument("the mean of nothing");
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
SHARE(mean, arg("values"), doc("The arithmetic mean."), idempotent());

std::map<std::string, int> count_words(const std::string& text) {
    std::map<std::string, int> counts;
    std::istringstream words(text);
    for (std::string word; words >> word;)
        ++counts[word];
    return counts;
}
SHARE_AS("count_words", count_words, arg("text"));

// Your own struct, with an optional field: {"item": "tea", "count": 2}, with or without "note".
struct Order {
    std::string item;
    int count = 1;
    std::optional<std::string> note;
};
SHARED_TENSOR_FIELDS(Order, item, count, note);

std::string describe(const Order& order, const std::string& greeting) {
    const std::string note = order.note ? " (" + *order.note + ')' : "";
    return greeting + ": " + std::to_string(order.count) + " x " + order.item + note;
}
SHARE(describe, arg("order"), arg("greeting") = std::string("Order"));

}  // namespace shop

namespace {

using namespace shared_tensor;  // NOLINT(google-build-using-namespace): an example

void call_all(const Client& client) {
    std::printf("mean: %g\n", client.call<double>("shop.mean", std::vector<double>{1, 2, 6}));
    for (const auto& [word, count] : client.call<std::map<std::string, int>>("count_words", "to be or not to be"))
        std::printf("count_words: %s %d\n", word.c_str(), count);

    // Arguments by position, or by name. Arguments with a default may be left out.
    const shop::Order order{"tea", 2, "hot"};
    std::printf("describe: %s\n", client.call<std::string>("shop.describe", order).c_str());
    const auto named_call =
        client.call<std::string>("shop.describe", named("greeting", "For you"), named("order", order));
    std::printf("describe: %s\n", named_call.c_str());
    std::printf("times: %g\n", client.call<double>("times", 14));
}

}  // namespace

int main() {
    try {
        Registry registry = Registry::from_shared();
        // Shares a lambda with captured data: not only functions can be shared.
        const double factor = 3;
        registry.add(
            "times", [factor](double x) { return factor * x; }, arg("x"));

        ServerOptions options;
        options.port = 0;  // the kernel chooses a free port
        Server server(std::move(registry), options);
        server.start();
        call_all(Client(server.url()));
        server.stop(options.drain_time);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "simple_functions: %s\n", error.what());
        return 1;
    }
}
