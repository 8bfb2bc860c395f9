// Which errors a call can have, how a client gets them, and when a call is repeated.
//
//     shared-tensor-server --load libexample_plugin.so &
//     errors_and_retries

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

#include <shared_tensor/client.hpp>

namespace {

using namespace shared_tensor;  // NOLINT(google-build-using-namespace): an example
using namespace std::chrono_literals;

// Errors of the server are classes derived from RpcError, with the server's code, message and data.
void errors(const Client& client) {
    try {
        client.call<double>("add", "one", 2);
    } catch (const InvalidParams& error) {
        std::printf("InvalidParams %d: %s\n", error.code(), error.data().c_str());
    }
    try {
        client.call("fail", "no more paper");
    } catch (const FunctionFailed& error) {
        std::printf("FunctionFailed %d: %s\n", error.code(), error.data().c_str());
    }
    try {
        client.call("nobody.shares.this");
    } catch (const MethodNotFound& error) {
        std::printf("MethodNotFound %d: %s\n", error.code(), error.message().c_str());
    }
    try {
        client.call<std::string>("add", 1, 2);
    } catch (const ResultMismatch& error) {
        std::printf("ResultMismatch: expected %s\n", error.expected.c_str());
    }
}

// A timeout limits the call with all its tries. The server gets it too, and cancels a call that no client waits for.
void deadline(const Client& client) {
    CallOptions options;
    options.timeout = 200ms;
    try {
        client.with(options).call<double>("sleep", 60.0);
    } catch (const DeadlineExceeded& error) {
        std::printf("DeadlineExceeded %d\n", error.code());
    }
}

// No request was sent, so the call may be tried again: here three times, by our own strategy, which also prints.
void no_server() {
    ClientOptions options;
    options.url = "http://127.0.0.1:1";
    options.retry = [](const FailedTry& failed) -> std::optional<std::chrono::milliseconds> {
        std::printf("try %d failed\n", failed.number);
        if (failed.number == 3) return std::nullopt;
        return 20ms * failed.number;
    };
    const Client client(options);
    try {
        client.call<double>("add", 1, 2);
    } catch (const TransportFailure& error) {
        std::printf("TransportFailure, may have run: %s\n", error.may_have_run() ? "yes" : "no");
    }
    std::printf("retries: %llu\n", static_cast<unsigned long long>(client.statistics().retries));
}

// The connection breaks after the call was sent: the call is repeated only if that is safe. Either the function may run
// twice (`idempotent`), or a key makes the server run it once and answer each repeat with the first result.
void safe_to_repeat(const Client& client) {
    CallOptions harmless;
    harmless.idempotent = true;
    std::printf("add: %g\n", client.with(harmless).call<double>("add", 1, 2));

    CallOptions once;
    once.idempotency_key = "nap-" + client.info().epoch;
    const double first = client.with(once).call<double>("sleep", 0.2);
    const double repeat = client.with(once).call<double>("sleep", 0.2);
    std::printf("the repeat has the first one's result: %s\n", first == repeat ? "yes" : "no");
    try {
        client.with(once).call<double>("sleep", 0.3);
    } catch (const InvalidParams&) {
        std::printf("the key of another call is rejected\n");
    }
}

}  // namespace

int main() {
    try {
        const Client client;
        errors(client);
        deadline(client);
        no_server();
        safe_to_repeat(client);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "errors_and_retries: %s\n", error.what());
        return 1;
    }
}
