#include "provider.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <shared_tensor/processes.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/server_options.hpp>
#include <shared_tensor/shared_memory.hpp>

#include "value.hpp"

namespace shared_tensor::python {

namespace {

using nb::literals::operator""_a;
using std::chrono::milliseconds;

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

/// What a Python function sees of its call. It is empty once the function has returned.
struct PyContext {
    Context* context;

    Context& get() const {
        if (context == nullptr) throw std::runtime_error("the call of this Context has ended");
        return *context;
    }
};

struct ItemReader {
    Reader<PyValue> reader;
};

struct ItemWriter {
    Writer<PyValue> writer;
};

/// The reason why a Python function failed. The caller holds the GIL.
CallFailure failure_of(nb::python_error& error, bool binding) {
    const nb::module_ errors = nb::module_::import_("shared_tensor.errors");
    const nb::object thrown = nb::borrow(error.value());
    CallFailure failure;
    failure.item = !binding && error.matches(errors.attr("BadItem"));
    if (failure.item || (binding && error.matches(errors.attr("BadArgument")))) {
        failure.kind = CallFailure::Kind::invalid_params;
        failure.parameter = text_of(thrown.attr("parameter"));
        failure.expected = text_of(thrown.attr("expected"));
        failure.got = text_of(thrown.attr("got"));
        return failure;
    }
    if (error.matches(errors.attr("Cancelled"))) failure.kind = CallFailure::Kind::cancelled;
    if (error.matches(PyExc_MemoryError)) failure.kind = CallFailure::Kind::out_of_memory;
    failure.type = text_of(errors.attr("_name_of")(thrown));
    failure.message = text_of(thrown);
    failure.traceback = text_of(errors.attr("_traceback_of")(thrown));
    return failure;
}

/// Keeps the state that Python has of a thread of the server until the thread ends. Without this, each call would make
/// a new one, each time that it takes the GIL.
void keep_thread_state() {
    struct Kept {
        Kept() : state(PyGILState_Ensure()), thread(PyEval_SaveThread()) {}
        ~Kept() {
            if (!nb::is_alive()) return;
            PyEval_RestoreThread(thread);
            PyGILState_Release(state);
        }
        PyGILState_STATE state;
        PyThreadState* thread;
    };
    if (PyGILState_GetThisThreadState() != nullptr) return;  // kept already, or a thread of Python's own
    thread_local const Kept kept;
}

/// Runs `work` with the GIL; an exception becomes the failure.
template <class Work>
std::optional<CallFailure> guarded(bool binding, Work work) noexcept {
    try {
        if (!nb::is_alive()) {
            CallFailure failure;
            failure.kind = CallFailure::Kind::cancelled;
            return failure;
        }
        keep_thread_state();
        const nb::gil_scoped_acquire gil;
        try {
            work();
            return std::nullopt;
        } catch (nb::python_error& error) {
            return failure_of(error, binding);
        }
    } catch (const InvalidValue& error) {
        CallFailure failure;
        if (binding) failure.kind = CallFailure::Kind::invalid_params;
        failure.parameter = error.path;
        failure.expected = error.expected;
        failure.got = error.got;
        failure.type = "TypeError";
        failure.message = error.what();
        return failure;
    } catch (const std::bad_alloc&) {
        CallFailure failure;
        failure.kind = CallFailure::Kind::out_of_memory;
        return failure;
    } catch (const std::exception& error) {
        CallFailure failure;
        failure.type = "RuntimeError";
        failure.message = error.what();
        return failure;
    }
}

class PyCall final : public BoundCall {
public:
    PyCall(PyValue definition, PyValue arguments)
        : definition_(std::move(definition)), arguments_(std::move(arguments)) {}

    std::optional<CallFailure> run(Context& context, ValueWriter result) noexcept override {
        return guarded(false, [&] {
            const CurrentContext current(context);
            const nb::object definition = definition_.object();
            const nb::object seen = nb::cast(PyContext{&context});
            struct End {
                const nb::object& seen;
                ~End() { nb::cast<PyContext&>(seen).context = nullptr; }
            } end{seen};
            const nb::object made = definition.attr("run")(arguments_.object(), seen);
            const KeepObjects keep;
            write_value(result, made);
        });
    }

private:
    using CurrentContext = detail::CurrentContext;
    const PyValue definition_, arguments_;
};

/// A function of a Python module. `definition` is a shared_tensor._function.Definition.
class PyFunction final : public FunctionRecord {
public:
    explicit PyFunction(const nb::object& definition)
        : name_(text_of(definition.attr("name"))),
          where_(text_of(definition.attr("where"))),
          doc_(text_of(definition.attr("doc"))),
          version_(text_of(definition.attr("version"))),
          definition_(definition) {
        options_.doc = doc_;
        options_.version = version_;
        options_.concurrency = nb::cast<std::size_t>(definition.attr("concurrency"));
        options_.idempotent = nb::cast<bool>(definition.attr("idempotent"));
        options_.timeout = milliseconds(nb::cast<std::int64_t>(definition.attr("timeout_ms")));
        if (nb::cast<bool>(definition.attr("task"))) options_.runs = execution::task;
        if (const auto ttl = nb::cast<std::int64_t>(definition.attr("cache_ms")); ttl > 0) {
            options_.cached = true;
            options_.cache_ttl = milliseconds(ttl);
            options_.cache_bytes = std::size_t{64} << 20;
        }
        for (nb::handle parameter : definition.attr("parameters")) {
            const std::string flow = text_of(parameter.attr("flow"));
            parameters_.push_back({text_of(parameter.attr("name")), nb::cast<bool>(parameter.attr("required")),
                                   flow == "reader"   ? Flow::reader
                                   : flow == "writer" ? Flow::writer
                                                      : Flow::value});
        }
    }

    std::string_view name() const override { return name_; }
    const FunctionOptions& options() const override { return options_; }
    std::string where() const override { return where_; }
    std::span<const ParameterInfo> parameters() const override { return parameters_; }
    void parameter_schema(std::size_t index, ValueWriter schema) const override {
        write_attribute(index, "schema", schema);
    }
    void default_value(std::size_t index, ValueWriter value) const override {
        write_attribute(index, "default", value);
    }
    void result_schema(ValueWriter schema) const override {
        const nb::gil_scoped_acquire gil;
        write_value(schema, definition_.object().attr("result_schema"));
    }

    Binding bind(const ValueSource& source, std::span<const ValueSource::Node> nodes) const noexcept override {
        Binding binding;
        binding.failure = guarded(true, [&] {
            const nb::object definition = definition_.object();
            nb::dict given;
            for (std::size_t i = 0; i < nodes.size(); ++i) {
                if (nodes[i] == nullptr) continue;
                given[nb::str(parameters_[i].name.c_str())] =
                    read_value(ValueReader(source, nodes[i], parameters_[i].name));
            }
            binding.call = std::make_unique<PyCall>(definition_, PyValue(definition.attr("bind")(given)));
        });
        return binding;
    }

private:
    void write_attribute(std::size_t index, const char* attribute, ValueWriter writer) const {
        const nb::gil_scoped_acquire gil;
        write_value(writer, definition_.object().attr("parameters")[index].attr(attribute));
    }

    const std::string name_, where_, doc_, version_;
    FunctionOptions options_;
    std::vector<ParameterInfo> parameters_;
    const PyValue definition_;
};

Registry registry_of(const nb::list& definitions) {
    Registry registry;
    for (nb::handle definition : definitions)
        registry.add(std::make_shared<PyFunction>(nb::borrow(definition)));
    return registry;
}

/// A server, and its worker processes if it has any.
class PyServer {
public:
    /// `command`: of a worker process. `processes` 0: the functions run in this process.
    PyServer(const nb::list& definitions, ServerOptions options, std::size_t processes,
             std::vector<std::string> command)
        : drain_time_(options.drain_time) {
        Registry registry = registry_of(definitions);
        const nb::gil_scoped_release release;
        if (processes > 0) {
            workers_.emplace(ProcessOptions{
                .processes = processes, .command = std::move(command), .while_starting = [this] { check_signals(); }});
            registry = workers_->share(registry);
        }
        server_.emplace(std::move(registry), std::move(options));
    }
    ~PyServer() {
        const nb::gil_scoped_release release;  // calls that run need it to end
        server_.reset();
        workers_.reset();
    }
    PyServer(const PyServer&) = delete;
    PyServer& operator=(const PyServer&) = delete;

    /// `told_to_end`: None, or a function; if it returns true while worker processes start, InterruptedError is raised.
    void start(nb::object told_to_end) {
        const PyValue keep(std::move(told_to_end));
        told_to_end_ = &keep;
        const nb::gil_scoped_release release;
        if (workers_) workers_->start();
        try {
            server_->start();
        } catch (...) {
            if (workers_) workers_->stop(milliseconds(0));
            throw;
        }
    }
    bool stop(milliseconds drain_time) {
        const bool ended = server_->stop(drain_time);
        if (workers_) workers_->stop(kTimeToEnd);
        return ended;
    }
    milliseconds drain_time() const { return drain_time_; }
    const Server& get() const { return *server_; }
    std::vector<WorkerProcessStatus> workers() const {
        return workers_ ? workers_->status() : std::vector<WorkerProcessStatus>();
    }

private:
    void check_signals() const {
        const nb::gil_scoped_acquire gil;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        const nb::object told = told_to_end_->object();
        if (told.is_none() || !nb::cast<bool>(told())) return;
        PyErr_SetString(PyExc_InterruptedError, "told to end before the worker processes were ready");
        throw nb::python_error();
    }

    static constexpr milliseconds kTimeToEnd{2'000};  // of worker processes without calls
    const milliseconds drain_time_;
    const PyValue* told_to_end_ = nullptr;  ///< set while start() runs
    std::optional<WorkerProcesses> workers_;
    std::optional<Server> server_;
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

void define_context(nb::module_& module) {
    nb::class_<PyContext>(module, "Context", "The context of a running call. Do not use it after the function's end.")
        .def(
            "progress",
            [](const PyContext& self, double fraction, const std::string& message) {
                const nb::gil_scoped_release release;
                self.get().progress(fraction, message);
            },
            "fraction"_a, "message"_a = "", "Reports the progress to waiting callers: a fraction from 0 to 1.")
        .def_prop_ro(
            "cancelled", [](const PyContext& self) { return self.get().cancelled(); },
            "True if the result is no longer wanted. Return soon.")
        .def(
            "check_cancelled", [](const PyContext& self) { self.get().check_cancelled(); },
            "Raises Cancelled if the result is no longer wanted.")
        .def(
            "sleep",
            [](const PyContext& self, double seconds) {
                const nb::gil_scoped_release release;
                return self.get().sleep_for(
                    std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
            },
            "seconds"_a, "Sleeps until the time is over or the call is cancelled. Returns False if it is cancelled.")
        .def_prop_ro(
            "remaining",
            [](const PyContext& self) -> std::optional<double> {
                const auto deadline = self.get().deadline();
                if (deadline == std::chrono::steady_clock::time_point::max()) return std::nullopt;
                return std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
            },
            "Seconds until the caller stops waiting; None without a deadline.")
        .def_prop_ro(
            "principal", [](const PyContext& self) { return std::string(self.get().caller().principal); },
            "The caller: 'uid:1000', 'token:NAME'.")
        .def_prop_ro(
            "session", [](const PyContext& self) { return std::string(self.get().caller().session); },
            "The caller's session; empty without one.")
        .def(
            "empty",
            [](const PyContext& self, const nb::iterable& shape, const nb::object& dtype, const nb::object& framework) {
                const nb::module_ convert = nb::module_::import_("shared_tensor._convert");
                const auto parsed = parse_dtype(text_of(convert.attr("dtype_name")(dtype)));
                if (!parsed) throw nb::value_error("no dtype has this name: use one like 'float32'");
                std::vector<std::int64_t> sizes;
                for (nb::handle size : shape)
                    sizes.push_back(nb::cast<std::int64_t>(size));
                const detail::CurrentContext current(self.get());
                const nb::object tensor = nb::cast(Tensor{empty_in_shared_memory(std::span(sizes), *parsed)});
                const nb::object wanted = convert.attr("converter")(framework);
                return wanted.is_none() ? tensor : wanted(tensor);
            },
            "shape"_a, "dtype"_a = "float32", "framework"_a = nb::none(),
            "Makes an uninitialised tensor in memory that is shared with callers. The function can return it any "
            "number "
            "of times without a copy. What it writes to it later, holders of the result see.")
        .def(
            "log",
            [](const PyContext& self, const std::string& text, const std::string& level) {
                const auto chosen = level == "debug"   ? LogLevel::debug
                                    : level == "warn"  ? LogLevel::warn
                                    : level == "error" ? LogLevel::error
                                                       : LogLevel::info;
                self.get().log(chosen, text);
            },
            "text"_a, "level"_a = "info", "Writes a line with the function's name to the server's log.")
        .def(
            "_reader",
            [](const PyContext& self, std::size_t parameter) {
                return new ItemReader{Reader<PyValue>(self.get().streams()->source(parameter))};
            },
            nb::rv_policy::take_ownership)
        .def(
            "_writer",
            [](const PyContext& self, std::size_t parameter) {
                return new ItemWriter{Writer<PyValue>(self.get().streams()->sink(parameter))};
            },
            nb::rv_policy::take_ownership);

    nb::class_<ItemReader>(module, "ItemReader").def("next", [](ItemReader& self) {
        std::optional<PyValue> item;
        {
            const nb::gil_scoped_release release;
            item = self.reader.next();
        }
        return item ? nb::make_tuple(item->object()) : nb::make_tuple();
    });
    nb::class_<ItemWriter>(module, "ItemWriter")
        .def(
            "write",
            [](ItemWriter& self, nb::object item) {
                const PyValue value(std::move(item));
                const KeepObjects keep;
                const nb::gil_scoped_release release;
                return self.writer.write(value);
            },
            "item"_a.none());
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
               std::vector<std::string> command) {
                new (self) PyServer(definitions, server_options(options), processes, std::move(command));
            },
            "definitions"_a, "options"_a, "processes"_a = 0, "command"_a = std::vector<std::string>(),
            "`options`: names and values, as set_option() of C++ takes them. `command`: of a worker process.")
        .def("start", &PyServer::start, "told_to_end"_a = nb::none())
        .def(
            "stop",
            [](PyServer& self, std::optional<double> drain_time) {
                return self.stop(drain_time ? milliseconds(static_cast<std::int64_t>(*drain_time * 1000))
                                            : self.drain_time());
            },
            "drain_time"_a, nb::call_guard<nb::gil_scoped_release>(),
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

    module.def("is_worker_process", &is_worker_process);
    module.def(
        "serve_as_worker",
        [](const nb::list& definitions, const TextOptions& options) {
            Registry functions = registry_of(definitions);
            const nb::gil_scoped_release release;
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
