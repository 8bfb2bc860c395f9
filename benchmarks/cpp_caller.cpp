// Calls a running server, for benchmarks/python_bench.py: the C++ client beside the Python one. Prints "ready"; then
// each line of standard input is "ping", "add", or a function without parameters that returns a tensor, whose first
// element is read. Prints the median of the calls of 30 ms, at least three, in microseconds.
//
//     shared_tensor_cpp_caller URL

#include <iostream>
#include <shared_tensor/client.hpp>
#include <shared_tensor/tensor_ref.hpp>
#include <stdexcept>
#include <string>

#include "measure.hpp"

namespace {

void call(const shared_tensor::Client& client, const std::string& function) {
    if (function == "ping") {
        client.ping();
        return;
    }
    if (function == "add") {
        if (client.call<double>("add", 1, 2) != 3) throw std::runtime_error("a wrong sum");
        return;
    }
    const auto tensor = client.call<shared_tensor::TensorRef>(function);
    if (*reinterpret_cast<const float*>(tensor.data()) != 1) throw std::runtime_error("a wrong tensor");
}

double median_of_a_moment(const shared_tensor::Client& client, const std::string& function) {
    bench::Sample sample;
    double total = 0;
    while (sample.values.size() < 3 || total < 30e3) {
        const auto start = bench::Clock::now();
        call(client, function);
        sample.values.push_back(bench::micros_since(start));
        total += sample.values.back();
    }
    return sample.median();
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc != 2) throw std::invalid_argument("usage: shared_tensor_cpp_caller URL");
        const shared_tensor::Client client(argv[1]);
        std::cout << "ready" << std::endl;
        for (std::string function; std::getline(std::cin, function);)
            std::cout << median_of_a_moment(client, function) << std::endl;
        return 0;
    } catch (const std::exception& error) {
        std::cerr << "shared_tensor_cpp_caller: " << error.what() << '\n';
        return 1;
    }
}
