#include "module.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>

#include "value.hpp"

namespace shared_tensor::python {

namespace {

using std::chrono::milliseconds;

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

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
        Kept() : state(or_wait_for_the_end(PyGILState_Ensure)), thread(PyEval_SaveThread()) {}
        ~Kept() {
            if (!nb::is_alive()) return;
            or_wait_for_the_end([this] { PyEval_RestoreThread(thread); });
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
        const WithGil gil;
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
            const nb::object run = definition.attr("run"), arguments = arguments_.object();
            const nb::object made = call_python(run, arguments, seen);
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
        options_.batch_rows = nb::cast<std::size_t>(definition.attr("batch_rows"));
        options_.batch_wait = std::chrono::microseconds(nb::cast<std::int64_t>(definition.attr("batch_wait_us")));
        if (nb::cast<bool>(definition.attr("task"))) options_.runs = execution::task;
        if (const auto ttl = nb::cast<std::int64_t>(definition.attr("cache_ms")); ttl > 0) {
            options_.cached = true;
            options_.cache_ttl = milliseconds(ttl);
            options_.cache_bytes = std::size_t{64} << 20;
        }
        for (nb::handle parameter : definition.attr("parameters")) {
            const std::string flow = text_of(parameter.attr("flow"));
            takes_tensor_.push_back(nb::cast<bool>(parameter.attr("takes_tensor")));
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
        const WithGil gil;
        write_value(schema, definition_.object().attr("result_schema"));
    }

    Binding bind(const ValueSource& source, std::span<const ValueSource::Node> nodes) const noexcept override {
        Binding binding;
        binding.failure = guarded(true, [&] {
            const nb::object definition = definition_.object();
            nb::dict given;
            for (std::size_t i = 0; i < nodes.size(); ++i) {
                if (nodes[i] == nullptr) continue;
                const ValueReader reader(source, nodes[i], parameters_[i].name);
                const bool is_tensor = takes_tensor_[i] && reader.kind() == Kind::array;
                given[nb::str(parameters_[i].name.c_str())] = is_tensor ? read_tensor(reader) : read_value(reader);
            }
            const nb::object bind = definition.attr("bind");
            binding.call = std::make_unique<PyCall>(definition_, PyValue(call_python(bind, given)));
        });
        return binding;
    }

private:
    void write_attribute(std::size_t index, const char* attribute, ValueWriter writer) const {
        const WithGil gil;
        write_value(writer, definition_.object().attr("parameters")[index].attr(attribute));
    }

    const std::string name_, where_, doc_, version_;
    FunctionOptions options_;
    std::vector<ParameterInfo> parameters_;
    std::vector<bool> takes_tensor_;  ///< of each parameter
    const PyValue definition_;
};

}  // namespace

Registry registry_of(const nb::list& definitions) {
    Registry registry;
    for (nb::handle definition : definitions)
        registry.add(std::make_shared<PyFunction>(nb::borrow(definition)));
    return registry;
}

}  // namespace shared_tensor::python
