#include <cstdio>

#include <shared_tensor/client.hpp>
#include <shared_tensor/server.hpp>

int main() {
    auto registry = shared_tensor::Registry::from_shared();
    std::printf("%zu functions\n", registry.size());

    shared_tensor::ServerOptions options;
    options.port = 0;  // any that is free
    shared_tensor::Server server(std::move(registry), options);
    server.start();
    const shared_tensor::Client client(server.url());
    std::printf("price: %.2f\n", client.call<double>("shop.price", 100));
    server.stop(options.drain_time);
}
