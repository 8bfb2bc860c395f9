#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include <nanobind/stl/string.h>

#include <shared_tensor/async_client.hpp>

#include "module.hpp"
#include "options.hpp"
#include "value.hpp"

namespace shared_tensor::python {

namespace {

using nb::literals::operator""_a;

class PyAsyncClient {
public:
    PyAsyncClient(std::size_t threads, const nb::kwargs& options)
        : client_(std::make_unique<AsyncClient>(
              AsyncOptions{.client = client_options(options), .threads = threads, .max_waiting = 100'000})) {}
    ~PyAsyncClient() { close(); }
    PyAsyncClient(const PyAsyncClient&) = delete;
    PyAsyncClient& operator=(const PyAsyncClient&) = delete;

    /// Cancels all calls, and waits until their callbacks, which need the GIL, have returned.
    void close() {
        std::unique_ptr<AsyncClient> ended = std::move(client_);
        const WithoutGil without_gil;
        ended.reset();
    }
    AsyncCaller with(CallOptions options) const {
        if (client_ == nullptr) throw std::runtime_error("the AsyncClient is closed");
        return client_->with(std::move(options));
    }

private:
    std::unique_ptr<AsyncClient> client_;
};

/// Tells a call's outcome to Python: done(result, exception, receipt), on a thread of the client.
void finish(const PyValue& done, std::future<PyValue> outcome, const Receipt& receipt) {
    if (!nb::is_alive()) return;
    const WithGil gil;
    nb::object result = nb::none(), exception = nb::none();
    try {
        result = outcome.get().object();
    } catch (...) {
        exception = exception_of(std::current_exception());
    }
    try {
        const nb::object function = done.object(), fields = receipt_of(receipt);
        call_python(function, result, exception, fields);
    } catch (nb::python_error& error) {
        error.discard_as_unraisable("the end of an asynchronous call");
    }
}

}  // namespace

void define_async_client(nb::module_& module) {
    nb::class_<Stop>(module, "Stop").def(nb::init<>()).def("request", [](Stop& self) {
        const WithoutGil without_gil;
        self.source.request_stop();
    });
    nb::class_<PyAsyncClient>(module, "AsyncClient", nb::is_weak_referenceable())
        .def(
            "__init__",
            [](PyAsyncClient* self, std::size_t threads, const nb::kwargs& options) {
                new (self) PyAsyncClient(threads, options);
            },
            "threads"_a, "options"_a)
        .def(
            "call",
            [](const PyAsyncClient& self, const std::string& method, const nb::tuple& positional, const nb::dict& named,
               nb::object done, const nb::kwargs& options) {
                Stop stop;
                CallOptions of_call = call_options(options);
                of_call.stop = stop.source.get_token();
                const AsyncCaller caller = self.with(std::move(of_call));
                const PyArguments arguments(positional, named);
                const auto receipt = std::make_shared<Receipt>();  // the callback keeps it
                const auto then = [done = PyValue(std::move(done)), receipt](std::future<PyValue> outcome) {
                    finish(done, std::move(outcome), *receipt);
                };
                const WithoutGil without_gil;
                caller.call_then<PyValue>(*receipt, then, method, arguments);
                return stop;
            },
            nb::lock_self(), "method"_a, "positional"_a, "named"_a, "done"_a, "options"_a)
        .def("close", &PyAsyncClient::close, nb::lock_self());
}

}  // namespace shared_tensor::python
