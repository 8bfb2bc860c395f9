#include <exception>
#include <iostream>

#include <shared_tensor/server.hpp>

/// Prints how many functions a model, "NAME=PATH", gives.
int main(int, char** argv) try {
    shared_tensor::ServerOptions options;
    options.port = 0;
    options.models = {argv[1]};
    const shared_tensor::Server server({}, options);
    std::cout << server.functions() << " functions of a model\n";
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
