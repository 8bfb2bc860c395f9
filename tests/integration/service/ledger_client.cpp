// Calls `enter` of ledger_plugin from several threads until its standard input ends. Every call has an idempotency key,
// so the client repeats it when a connection breaks. Prints each call that was answered, and ends with code 1 if one
// failed.

#include <unistd.h>

#include <atomic>
#include <iostream>
#include <string>
#include <syncstream>
#include <thread>
#include <vector>

#include <shared_tensor/client.hpp>

namespace {

using namespace shared_tensor;  // NOLINT(google-build-using-namespace): a program of its tests

std::atomic<bool> stopped{false}, failed{false};

void call_all_the_time(const Client& client, const std::string& who) {
    for (int i = 0; !stopped.load(); ++i) {
        const std::string name = who + '-' + std::to_string(i);
        try {
            const auto answer = client.with({.idempotency_key = name}).call<std::string>("enter", name);
            std::osyncstream(std::cout) << answer << '\n';
        } catch (const std::exception& error) {
            std::osyncstream(std::cerr) << name << ": " << error.what() << '\n';
            failed.store(true);
        }
    }
}

}  // namespace

int main(int, char** argv) {
    ClientOptions options;
    options.url = argv[1];
    const Client client(options);
    std::vector<std::jthread> threads;
    for (const char* who : {"a", "b", "c"})
        threads.emplace_back([&client, who] { call_all_the_time(client, who); });
    for (char byte = 0; ::read(STDIN_FILENO, &byte, 1) > 0;) {
    }
    stopped.store(true);
    threads.clear();
    return failed.load() ? 1 : 0;
}
