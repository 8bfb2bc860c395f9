// Processes that share a model's weights: a trainer publishes them, and readers use them without a copy.
//
//     shared-tensor-server --load libexample_plugin.so &
//     named_tensors
//
// The program starts itself twice more, as readers.

#include <sys/wait.h>
#include <unistd.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>

#include <shared_tensor/client.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

namespace {

using namespace std::chrono_literals;
using shared_tensor::Client;
using shared_tensor::NamedTensor;
using shared_tensor::NamedTensors;

constexpr std::int64_t kWidth = 1024;

std::map<std::string, at::Tensor> weights_of(int step) {
    return {{"fc.weight", at::full({kWidth, kWidth}, step / static_cast<double>(kWidth), at::kFloat)},
            {"fc.bias", at::full({kWidth}, 0.0, at::kFloat)},
            {"step", at::full({}, step, at::kLong)}};
}

double first_of(const NamedTensor& weights) {
    const at::Tensor x = at::ones({1, kWidth}, at::kFloat);
    return at::linear(x, weights["fc.weight"], weights["fc.bias"])[0][0].item<double>();
}

/// Runs in another process: uses a version, waits for the next version, and uses that.
void read(const char* who) {
    const NamedTensors names((Client()));
    if (!names.watch("example.weights", 0, 30s)) throw std::runtime_error("nobody published any weights");
    const NamedTensor first = names.get("example.weights");
    std::printf("reader %s: version %d, y[0] = %g\n", who, static_cast<int>(first.version()), first_of(first));
    names.put(std::string("example.ready.") + who, first["step"]);

    const auto next = names.watch("example.weights", first.version(), 30s);
    if (!next) throw std::runtime_error("nobody published any new weights");
    const NamedTensor second = names.get("example.weights");
    std::printf("reader %s: version %d, y[0] = %g\n", who, static_cast<int>(second.version()), first_of(second));
    if (first_of(first) != 1) throw std::runtime_error("the first version has changed");
    std::printf("reader %s: what it held is still version %d\n", who, static_cast<int>(first.version()));
}

void publish(const NamedTensors& names, int step) {
    const auto weights = weights_of(step);
    const auto made = names.put("example.weights", weights, {std::nullopt, {{"step", std::to_string(step)}}});
    std::printf("trainer: published version %d, %zu tensors\n", static_cast<int>(made.version), weights.size());
}

pid_t start_reader(const char* program, const char* who) {
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
        ::execl(program, program, who, nullptr);
        ::_exit(127);
    }
    return child;
}

bool succeeded(pid_t child) {
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void train(const char* program) {
    const NamedTensors names((Client()));
    const pid_t one = start_reader(program, "1"), two = start_reader(program, "2");
    publish(names, 1);
    const bool ready = names.watch("example.ready.1", 0, 30s) && names.watch("example.ready.2", 0, 30s);
    const bool shared = ready && Client().info().json.find("\"segments\":1}") != std::string::npos;
    std::printf("%s\n", shared ? "one segment for two readers" : "there is not one segment for two readers");
    publish(names, 2);
    const bool first = succeeded(one), second = succeeded(two);
    if (!ready || !first || !second) throw std::runtime_error("a reader failed");

    const std::string file =
        std::filesystem::temp_directory_path() / ("example." + std::to_string(::getpid()) + ".safetensors");
    names.get("example.weights").save(file);
    const auto again = names.put_file("example.weights", file);
    std::filesystem::remove(file);
    std::printf("saved and published again: version %d\n", static_cast<int>(again.version));
    for (const auto& left : names.list("example."))
        names.remove(left.name);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        argc > 1 ? read(argv[1]) : train("/proc/self/exe");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "named_tensors: %s\n", error.what());
        return 1;
    }
}
