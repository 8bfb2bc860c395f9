#include "module.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <shared_tensor/node.hpp>
#include <shared_tensor/processes.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/server_options.hpp>
#include <shared_tensor/service_manager.hpp>

#include "blocking.hpp"
#include "options.hpp"
#include "value.hpp"

namespace shared_tensor::python {

namespace {

using nb::literals::operator""_a;
using std::chrono::milliseconds;

/// A server, and its worker processes if it has any.
class PyServer {
public:
    /// `command`: of a worker process. `processes` 0: the functions run in this process. `is_service`: a service
    /// manager may have started this process.
    PyServer(const nb::list& definitions, ServerOptions options, std::size_t processes,
             std::vector<std::string> command, bool is_service)
        : parts_(std::make_unique<Parts>()), drain_time_(options.drain_time) {
        Registry registry = registry_of(definitions);
        const WithoutGil without_gil;
        Parts& parts = *parts_;
        if (is_service) parts.manager.emplace().give_descriptors_to(options);
        if (processes > 0) {
            parts.workers.emplace(ProcessOptions{
                .processes = processes, .command = std::move(command), .while_starting = [this] { check_signals(); }});
            registry = parts.workers->share(registry);
            options.worker_processes = [workers = &*parts.workers] { return workers->status(); };
        }
        parts.server.emplace(std::move(registry), std::move(options));
    }
    ~PyServer() {
        const WithoutGil without_gil;         // calls that run need it to end
        if (!ended_) (void)parts_.release();  // a function still runs: it may use all this until the process ends
        parts_.reset();
    }
    PyServer(const PyServer&) = delete;
    PyServer& operator=(const PyServer&) = delete;

    /// `told_to_end`: None, or a function; if it returns true while worker processes start, InterruptedError is raised.
    void start(nb::object told_to_end) {
        const PyValue keep(std::move(told_to_end));
        told_to_end_ = &keep;
        const WithoutGil without_gil;
        if (parts_->workers) parts_->workers->start();
        try {
            parts_->server->start();
        } catch (...) {
            if (parts_->workers) parts_->workers->stop(milliseconds(0));
            throw;
        }
        if (parts_->manager) parts_->manager->ready(parts_->server->url());
    }
    bool stop(milliseconds drain_time) {
        if (parts_->manager) parts_->manager->stopping();
        ended_ = parts_->server->stop(drain_time);
        if (parts_->workers) parts_->workers->stop(kTimeToEnd);
        return ended_;
    }
    milliseconds drain_time() const { return drain_time_; }
    const Server& get() const { return *parts_->server; }
    std::vector<WorkerProcessStatus> workers() const {
        return parts_->workers ? parts_->workers->status() : std::vector<WorkerProcessStatus>();
    }

private:
    struct Parts {
        std::optional<ServiceManager> manager;
        std::optional<WorkerProcesses> workers;
        std::optional<Server> server;
    };

    void check_signals() const {
        const WithGil gil;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        const nb::object told = told_to_end_->object();
        if (told.is_none() || !nb::cast<bool>(told())) return;
        PyErr_SetString(PyExc_InterruptedError, "told to end before the worker processes were ready");
        throw nb::python_error();
    }

    static constexpr milliseconds kTimeToEnd{2'000};  // of worker processes without calls
    std::unique_ptr<Parts> parts_;
    const milliseconds drain_time_;
    const PyValue* told_to_end_ = nullptr;  ///< set while start() runs
    bool ended_ = true;                     ///< what the last stop() returned
};

nb::dict fields_of(const WorkerProcessStatus& status) {
    nb::dict fields;
    fields["pid"] = status.pid;
    fields["ready"] = status.ready;
    fields["calls"] = status.calls;
    fields["restarts"] = status.restarts;
    fields["last_end"] = status.last_end;
    return fields;
}

using TextOptions = std::vector<std::pair<std::string, std::string>>;

ServerOptions server_options(const TextOptions& given) {
    ServerOptions options;
    for (const auto& [name, value] : given)
        set_option(options, name, value);
    return options;
}

void define_options(nb::module_& module) {
    nb::class_<OptionInfo>(module, "OptionInfo", "The description of an option of a server.")
        .def_ro("name", &OptionInfo::name)
        .def_ro("section", &OptionInfo::section)
        .def_ro("help", &OptionInfo::help)
        .def_ro("form", &OptionInfo::form)
        .def_ro("is_list", &OptionInfo::is_list)
        .def_ro("common", &OptionInfo::common)
        .def_ro("default_value", &OptionInfo::default_value);
    module.def("list_server_options", &list_server_options);
    module.def("options_in_environment", &options_in_environment);
    module.def(
        "check_options", [](const TextOptions& options) { server_options(options); }, "options"_a,
        "Raises ValueError if a name or a value is not one that a server takes.");
}

void define_server(nb::module_& module) {
    nb::class_<PyServer>(module, "Server")
        .def(
            "__init__",
            [](PyServer* self, const nb::list& definitions, const TextOptions& options, std::size_t processes,
               std::vector<std::string> command, bool is_service) {
                new (self) PyServer(definitions, server_options(options), processes, std::move(command), is_service);
            },
            "definitions"_a, "options"_a, "processes"_a = 0, "command"_a = std::vector<std::string>(),
            "is_service"_a = false,
            "`options`: names and values, as set_option() of C++ takes them. `command`: of a worker process. "
            "`is_service`: a service manager may have started this process.")
        .def("start", &PyServer::start, "told_to_end"_a = nb::none())
        .def(
            "stop",
            [](PyServer& self, std::optional<double> drain_time) {
                return self.stop(drain_time ? from_seconds(*drain_time) : self.drain_time());
            },
            "drain_time"_a, nb::call_guard<WithoutGil>(),
            "Returns whether everything ended in `drain_time` seconds; None: the time in the options.")
        .def("processes",
             [](const PyServer& self) {
                 nb::list all;
                 for (const WorkerProcessStatus& status : self.workers())
                     all.append(fields_of(status));
                 return all;
             })
        .def_prop_ro("port", [](const PyServer& self) { return self.get().port(); })
        .def_prop_ro("url", [](const PyServer& self) { return self.get().url(); });

    nb::class_<NamedTensorCopy>(module, "NamedTensorCopy",
                                "A version of another server, on its way into a server of this process.")
        .def(
            "__init__",
            [](NamedTensorCopy* self, const PyServer& server, const std::string& token, const PyClient& from,
               const std::string& name) {
                PullOptions options;
                options.swarm.emplace().trusted = true;
                new (self) NamedTensorCopy(server.get(), token, NamedTensors(from.client), name, std::move(options));
            },
            "server"_a, "token"_a, "from_"_a, "name"_a, nb::keep_alive<1, 2>(), nb::call_guard<WithoutGil>(),
            "Pulls it, in a swarm whose other receivers are trusted.")
        .def(
            "publish", [](NamedTensorCopy& self) { return self.publish().version; }, nb::call_guard<WithoutGil>(),
            "Publishes it, and returns its version.");

    module.def("is_worker_process", &is_worker_process);
    module.def(
        "serve_as_worker",
        [](const nb::list& definitions, const TextOptions& options) {
            Registry functions = registry_of(definitions);
            const WithoutGil without_gil;
            serve_as_worker(std::move(functions), server_options(options));
        },
        "definitions"_a, "options"_a);
}

}  // namespace

void define_provider(nb::module_& module) {
    define_context(module);
    define_options(module);
    define_server(module);
}

}  // namespace shared_tensor::python
