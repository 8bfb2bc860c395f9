#include "module.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <shared_tensor/client.hpp>

#include "blocking.hpp"
#include "options.hpp"
#include "value.hpp"

namespace shared_tensor::python {

namespace {

using nb::literals::operator""_a;

nb::object value_of(const PyValue& value) { return value.object(); }

struct PyTask {
    Task<PyValue> task;
};

using StreamPointer = std::shared_ptr<StreamCall<PyValue>>;  // its readers and writers keep the call

struct PyReader {
    StreamPointer call;
    Reader<PyValue> reader;
};

struct PyWriter {
    StreamPointer call;
    Writer<PyValue> writer;
};

struct PyStreamCall {
    StreamPointer call;
};

struct PyBatch {
    std::stop_source stop;
    Batch batch;
};

/// Calls `keep` with the receipt, also after a call that failed, unless `keep` is None.
nb::object call(const PyClient& self, const std::string& method, const nb::tuple& positional, const nb::dict& named,
                nb::handle convert, const nb::object& keep) {
    const PyArguments arguments(positional, named);
    const bool keeps = !keep.is_none();
    Receipt receipt;
    const auto keep_receipt = [&] {
        if (keeps) keep(receipt_of(receipt));
    };
    try {
        const PyValue value = blocking_call(convert, self.client, [&](const Client& client) {
            return keeps ? client.call<PyValue>(receipt, method, arguments) : client.call<PyValue>(method, arguments);
        });
        keep_receipt();
        return value_of(value);
    } catch (const RpcError&) {
        keep_receipt();
        throw;
    }
}

void define_client(nb::module_& module) {
    nb::class_<PyClient>(module, "Client")
        .def("__init__",
             [](PyClient* self, const nb::kwargs& options) { new (self) PyClient{Client(client_options(options))}; })
        .def("with_options",
             [](const PyClient& self, const nb::kwargs& options) {
                 return PyClient{self.client.with(call_options(options))};
             })
        .def("call", &call, "method"_a, "positional"_a, "named"_a, "convert"_a.none(), "keep"_a.none())
        .def("notify",
             [](const PyClient& self, const std::string& method, const nb::tuple& positional, const nb::dict& named) {
                 const PyArguments arguments(positional, named);
                 blocking_call(nb::none(), self.client,
                               [&](const Client& client) { client.notify(method, arguments); });
             })
        .def("submit",
             [](const PyClient& self, const std::string& method, const nb::tuple& positional, const nb::dict& named) {
                 const PyArguments arguments(positional, named);
                 return PyTask{blocking_call(nb::none(), self.client, [&](const Client& client) {
                     return client.submit<PyValue>(method, arguments);
                 })};
             })
        .def("task",
             [](const PyClient& self, std::string id) { return PyTask{self.client.task<PyValue>(std::move(id))}; })
        .def("stream",
             [](const PyClient& self, const std::string& method, const nb::tuple& positional, const nb::dict& named) {
                 const PyArguments arguments(positional, named);
                 return PyStreamCall{blocking_call(nb::none(), self.client, [&](const Client& client) {
                     return std::make_shared<StreamCall<PyValue>>(client.stream<PyValue>(method, arguments));
                 })};
             })
        .def("batch",
             [](const PyClient& self) {
                 std::stop_source stop;
                 CallOptions options = self.client.options();
                 options.stop = stop.get_token();
                 return PyBatch{stop, self.client.with(std::move(options)).batch()};
             })
        .def("new_session",
             [](const PyClient& self) {
                 return PyClient{blocking_call(nb::none(), self.client,
                                               [&](const Client& client) { return client.new_session(); })};
             })
        .def("session",
             [](const PyClient& self) {
                 return blocking_call(nb::none(), self.client, [&](const Client& client) { return client.session(); });
             })
        .def("info",
             [](const PyClient& self) {
                 return blocking_call(nb::none(), self.client,
                                      [&](const Client& client) { return client.info().json; });
             })
        .def("discover",
             [](const PyClient& self) {
                 return blocking_call(nb::none(), self.client, [&](const Client& client) { return client.discover(); });
             })
        .def("ping",
             [](const PyClient& self) {
                 return to_seconds(
                     blocking_call(nb::none(), self.client, [&](const Client& client) { return client.ping(); }));
             })
        .def("transports",
             [](const PyClient& self) {
                 nb::list list;
                 for (const auto& info :
                      blocking_call(nb::none(), self.client, [&](const Client& client) { return client.transports(); }))
                     list.append(nb::make_tuple(info.name, info.usable, info.reason));
                 return list;
             })
        .def("empty_in_shared_memory",
             [](const PyClient& self, const std::vector<std::int64_t>& shape, const std::string& dtype) {
                 const DType parsed = dtype_of(dtype);
                 return Tensor{blocking_call(nb::none(), self.client, [&](const Client& client) {
                     return client.empty_in_shared_memory(shape, parsed);
                 })};
             })
        .def("url", [](const PyClient& self) { return self.client.url(); })
        .def("shutdown", [](const PyClient& self) {
            [&] {
                const WithoutGil without_gil;
                self.client.shutdown();
            }();
        });
}

/// Waits in parts, so that Python's handlers of signals run between them. Returns whether the task has ended.
bool wait(const TaskHandle& task, double seconds) {
    constexpr double kPart = 0.25;
    while (true) {
        const double now = std::min(seconds, kPart);
        const bool ended = blocking(
            nb::none(), [] {}, [&] { return task.wait_for(from_seconds(now)); });
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        seconds -= now;
        if (ended || seconds <= 0) return ended;
    }
}

void define_tasks(nb::module_& module) {
    nb::class_<PyTask>(module, "Task")
        .def("id", [](const PyTask& self) { return self.task.id(); })
        .def("status",
             [](const PyTask& self) {
                 return status_of(blocking(
                     nb::none(), [] {}, [&] { return self.task.status(); }));
             })
        .def("wait_for", [](const PyTask& self, double seconds) { return wait(self.task, seconds); })
        .def("cancel",
             [](const PyTask& self) {
                 return status_of(blocking(
                     nb::none(), [] {}, [&] { return self.task.cancel(); }));
             })
        .def("on_progress",
             [](PyTask& self, nb::object report) {
                 self.task.on_progress([report = PyValue(std::move(report))](const TaskStatus& status) {
                     const WithGil gil;
                     try {
                         const nb::object function = report.object(), fields = status_of(status);
                         call_python(function, fields);
                     } catch (nb::python_error& error) {
                         error.discard_as_unraisable("a callback of Task.on_progress");
                     }
                 });
             })
        .def(
            "get",
            [](const PyTask& self, nb::handle convert) {
                wait(self.task, std::numeric_limits<double>::infinity());
                return value_of(blocking(
                    convert, [] {}, [&] { return self.task.get(); }));
            },
            "convert"_a.none());

    nb::class_<BatchItem<PyValue>>(module, "BatchItem")
        .def(
            "get",
            [](const BatchItem<PyValue>& self, nb::handle convert) {
                return value_of(blocking(
                    convert, [] {}, [&] { return self.get(); }));
            },
            "convert"_a.none());
    nb::class_<PyBatch>(module, "Batch")
        .def(
            "add",
            [](PyBatch& self, const std::string& method, const nb::tuple& positional, const nb::dict& named) {
                return self.batch.add<PyValue>(method, PyArguments(positional, named));
            },
            nb::lock_self())
        .def(
            "notify",
            [](PyBatch& self, const std::string& method, const nb::tuple& positional, const nb::dict& named) {
                self.batch.notify(method, PyArguments(positional, named));
            },
            nb::lock_self())
        .def(
            "size", [](const PyBatch& self) { return self.batch.size(); }, nb::lock_self())
        .def(
            "send",
            [](PyBatch& self) {
                Receipt receipt;
                blocking(
                    nb::none(), [&] { self.stop.request_stop(); }, [&] { self.batch.send(receipt); });
                return receipt_of(receipt);
            },
            nb::lock_self());
}

void define_streams(nb::module_& module) {
    nb::class_<PyReader>(module, "Reader")
        .def(
            "next",
            [](PyReader& self, nb::handle convert) {
                const auto item = blocking(
                    convert, [&] { self.call->cancel(); }, [&] { return self.reader.next(); });
                return item ? nb::make_tuple(item->object()) : nb::make_tuple();
            },
            "convert"_a.none());
    nb::class_<PyWriter>(module, "Writer")
        .def(
            "write",
            [](PyWriter& self, nb::object item) {
                const PyValue value(std::move(item));
                return blocking(
                    nb::none(), [&] { self.call->cancel(); }, [&] { return self.writer.write(value); });
            },
            "item"_a.none())
        .def("end", [](PyWriter& self) {
            blocking(
                nb::none(), [&] { self.call->cancel(); }, [&] { self.writer.end(); });
        });
    nb::class_<PyStreamCall>(module, "StreamCall")
        .def(
            "reader",
            [](PyStreamCall& self, const std::string& name) {
                return new PyReader{self.call, self.call->reader<PyValue>(name)};
            },
            nb::rv_policy::take_ownership)
        .def(
            "writer",
            [](PyStreamCall& self, const std::string& name) {
                return new PyWriter{self.call, self.call->writer<PyValue>(name)};
            },
            nb::rv_policy::take_ownership)
        .def(
            "result",
            [](PyStreamCall& self, nb::handle convert) {
                return value_of(blocking(
                    convert, [&] { self.call->cancel(); }, [&] { return self.call->result(); }));
            },
            "convert"_a.none())
        .def("cancel", [](PyStreamCall& self) { self.call->cancel(); });
}

}  // namespace

void define_clients(nb::module_& module) {
    define_client(module);
    define_tasks(module);
    define_streams(module);
}

}  // namespace shared_tensor::python
