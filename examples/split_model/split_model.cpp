// Split learning: one network in three daemons, each with a part of it. The client holds the data, tells each host
// which part to load, and chains the calls; each host has only the weights of its part.
//
//     split_model write FOLDER                                     # the parts, as TorchScript files
//     shared-tensor-server --model-folder FOLDER --service-name bottom ... &   # one on each host
//     split_model run FOLDER URL_OF_BOTTOM URL_OF_TRUNK URL_OF_TOP
//
// examples/split_model/run does all of this on one machine, over TCP.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/torch.hpp>

#include "parts.hpp"

namespace {

using shared_tensor::Client;
using shared_tensor::named;

constexpr int kBatches = 20;
constexpr std::array<const char*, 3> kParts = {"bottom", "trunk", "top"};

at::Tensor batch(int number) { return at::arange(32 * 64, at::kFloat).add(number).mul(0.01).cos().reshape({32, 64}); }

Client connect(const char* url) {
    shared_tensor::ClientOptions options;
    options.url = url;
    options.local_socket = "none";  // as if from another host
    return Client(options);
}

double microseconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1000; }

void show(const Client& client) {
    const auto service = client.call<nlohmann::json>("server.info")["service"];
    const auto statistics = client.statistics();
    const double succeeded = 100.0 * static_cast<double>(statistics.requests - statistics.failures) /
                             static_cast<double>(statistics.requests);
    std::printf("%s %s on %s: %llu requests, %.0f %% succeeded, p50 of compute %.0f us, of network %.0f us\n",
                service["name"].get<std::string>().c_str(), service["version"].get<std::string>().c_str(),
                service["devices"][0].get<std::string>().c_str(), static_cast<unsigned long long>(statistics.requests),
                succeeded, microseconds(statistics.compute.p50), microseconds(statistics.network.p50));
}

/// Loads the part; it replaces the part loaded before. The daemon only loads files from its operator's folders.
void load(const Client& client, const std::string& part) {
    const auto model = client.call<nlohmann::json>("model.load", named("name", "part"), named("file", part + ".pt"),
                                                   named("stateful", "no"), named("replace", true));
    std::printf("%s: %s parameters\n", part.c_str(), model["parameters"].dump().c_str());
}

int run(const std::string& folder, const std::vector<const char*>& urls) {
    std::vector<Client> parts;
    for (const char* url : urls)
        parts.push_back(connect(url));
    for (std::size_t i = 0; i < parts.size(); ++i)
        load(parts[i], kParts[i]);
    int same = 0;
    for (int i = 0; i < kBatches; ++i) {
        at::Tensor x = batch(i);
        for (const Client& part : parts)
            x = part.call<at::Tensor>("part.forward", x);
        same += at::equal(x, split_model::run_parts(folder, batch(i))) ? 1 : 0;
    }
    for (const Client& part : parts)
        show(part);
    std::printf("the same as the local model, bit by bit: %d of %d\n", same, kBatches);
    return same == kBatches ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view command = argc > 1 ? argv[1] : "";
    try {
        if (command == "write" && argc == 3) {
            split_model::write_parts(argv[2]);
            return 0;
        }
        if (command == "run" && argc == 6) return run(argv[2], {argv[3], argv[4], argv[5]});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "split_model: %s\n", error.what());
        return 1;
    }
    std::fprintf(stderr, "usage: split_model write FOLDER | split_model run FOLDER URL URL URL\n");
    return 2;
}
