#pragma once

// Calls that block: without the GIL, and a signal can end them.

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include <shared_tensor/client.hpp>
#include <shared_tensor/client/interruption.hpp>

#include "value.hpp"

namespace shared_tensor::python {

/// The class Client of the module.
struct PyClient {
    Client client;
};

/// Gives up the GIL while it lives. If the interpreter has ended meanwhile, the thread waits until the process ends:
/// Python before 3.14 unwinds the stack of such a thread, and no C++ function that is noexcept survives that.
class WithoutGil {
public:
    WithoutGil() : thread_(PyEval_SaveThread()) {}
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;
    ~WithoutGil() {
        try {
            PyEval_RestoreThread(thread_);
        } catch (const abi::__forced_unwind&) {
            while (true)
                ::pause();
        }
    }

private:
    PyThreadState* const thread_;
};

/// Runs `work` without the GIL. Tensors that it reads are passed to `convert`. If a signal arrives while it waits and
/// the signal's handler in Python raises, `cancel` is called, and the handler's exception is thrown.
template <class Work>
auto blocking(nb::handle convert, const std::function<void()>& cancel, Work work) {
    const ConvertTensors conversion(convert);
    std::optional<nb::python_error> raised;
    try {
        const WithoutGil without_gil;
        std::optional<OnInterruption> interruption;
        if (::gettid() == ::getpid())
            interruption.emplace([&] {  // Python runs handlers on its main thread alone
                if (raised) return;
                {
                    const nb::gil_scoped_acquire gil;
                    if (PyErr_CheckSignals() == 0) return;
                    raised.emplace();
                }
                cancel();
            });
        return work();
    } catch (const Cancelled&) {
        if (raised) throw *raised;
        throw;
    }
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
