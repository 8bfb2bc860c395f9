#pragma once

// Calls that block: without the GIL, and a signal can end them.

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include <shared_tensor/client.hpp>
#include <shared_tensor/client/interruption.hpp>

#include "value.hpp"

namespace shared_tensor::python {

/// The class Client of the module. The last client of a session tells the server when it ends, which may block.
struct PyClient {
    Client client;

    explicit PyClient(Client made) : client(std::move(made)) {}
    PyClient(PyClient&&) = default;
    ~PyClient() {
        const WithoutGil without_gil;
        const Client ended = std::move(client);
    }
};

/// Runs `work` without the GIL. Tensors that it reads are passed to `convert`. If a signal arrives while it waits and
/// the signal's handler in Python raises, `cancel` is called, and the handler's exception is thrown once `work` ends.
template <class Work>
auto blocking(nb::handle convert, const std::function<void()>& cancel, Work work) {
    const ConvertTensors conversion(convert);
    std::optional<nb::python_error> raised;
    const auto run = [&] {
        const WithoutGil without_gil;
        std::optional<OnInterruption> interruption;
        if (::gettid() == ::getpid())
            interruption.emplace([&] {  // Python runs handlers on its main thread alone
                if (raised) return;
                {
                    const WithGil gil;
                    if (PyErr_CheckSignals() == 0) return;
                    raised.emplace();
                }
                cancel();
            });
        return work();
    };
    try {
        if constexpr (std::is_void_v<decltype(work())>) {
            run();
            if (!raised) return;
        } else {
            auto result = run();
            if (!raised) return result;
        }
    } catch (...) {
        if (!raised) throw;
    }
    throw nb::python_error(std::move(*raised));
}

/// Runs `work` with a client whose calls a signal can cancel.
template <class Work>
auto blocking_call(nb::handle convert, const Client& client, Work work) {
    std::stop_source stop;
    CallOptions options = client.options();
    options.stop = stop.get_token();
    const Client stoppable = client.with(std::move(options));
    return blocking(
        convert, [&] { stop.request_stop(); }, [&] { return work(stoppable); });
}

}  // namespace shared_tensor::python
