// Streams: values that are sent while the function runs, in one direction, in the other, and in both at once.
//
// Needs a daemon with the example plugin (plugin/streams.cpp has the functions).

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <cstdio>
#include <exception>
#include <thread>

#include <shared_tensor/client.hpp>
#include <shared_tensor/torch.hpp>

using shared_tensor::Client;
using shared_tensor::named;
using shared_tensor::Reader;
using shared_tensor::Writer;

namespace {

void from_the_function(const Client& client) {
    auto call = client.stream<std::int64_t>("count", named("up_to", 1'000'000'000));
    std::int64_t sum = 0;
    Reader<std::int64_t> numbers = call.reader<std::int64_t>();
    while (sum < 100)
        sum += numbers.next().value();
    numbers = {};  // ends the stream: write() in the function returns false
    std::printf("took the first numbers up to a sum of %lld; the function stopped early: %s\n",
                static_cast<long long>(sum), call.result() < 1'000'000'000 ? "yes" : "no");
}

void to_the_function(const Client& client) {
    auto call = client.stream<double>("sum_of");
    {
        Writer<double> numbers = call.writer<double>();
        for (int i = 1; i <= 1000; ++i)
            numbers.write(i);
    }  // the destructor of the Writer ends the stream
    std::printf("the sum of 1 to 1000: %.0f\n", call.result());
}

/// Tensors in both directions at once: one thread writes, another reads. The sender is at most one window ahead.
void both_ways(const Client& client) {
    auto call = client.stream<std::int64_t>("scale_each", named("factor", 3.0));
    auto tensors = call.writer<at::Tensor>();
    auto scaled = call.reader<at::Tensor>();
    std::jthread writing([tensors = std::move(tensors)]() mutable {
        for (int i = 0; i < 1000; ++i)
            tensors.write(at::full({256}, i, at::kFloat));
        tensors.end();
    });
    double sum = 0;
    for (const at::Tensor& tensor : scaled)
        sum += tensor[0].item<double>();
    std::printf("%lld tensors there and back, their first elements sum up to %.0f\n",
                static_cast<long long>(call.result()), sum);
}

void an_error_in_the_middle(const Client& client) {
    auto call = client.stream("tokens", named("count", 100), named("fail_after", 3));
    int tokens = 0;
    try {
        for ([[maybe_unused]] const at::Tensor& token : call.reader<at::Tensor>())
            ++tokens;
    } catch (const shared_tensor::FunctionFailed& error) {
        std::printf("after %d tokens: %s\n", tokens, error.what());
    }
}

}  // namespace

int main() {
    try {
        const Client client;
        from_the_function(client);
        to_the_function(client);
        both_ways(client);
        an_error_in_the_middle(client);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "streams: %s\n", error.what());
        return 1;
    }
}
