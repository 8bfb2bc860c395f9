#include "options.hpp"

#include <chrono>
#include <string>
#include <utility>

#include <nanobind/stl/string.h>

namespace shared_tensor::python {

namespace {

/// Reads keywords by name; None leaves the default.
class Keywords {
public:
    explicit Keywords(const nb::kwargs& options) : options_(options) {}

    template <class T>
    void read(const char* name, T& value) const {
        const nb::object given = get(name);
        if (given.is_none() || nb::try_cast(given, value)) return;
        throw nb::type_error((std::string(name) + " has a wrong type").c_str());
    }
    /// Seconds.
    template <class Time>
    void read_time(const char* name, Time& value) const {
        if (get(name).is_none()) return;
        double seconds = 0;
        read(name, seconds);
        value = from_seconds(seconds);
    }

private:
    nb::object get(const char* name) const {
        return options_.contains(name) ? nb::object(options_[name]) : nb::object(nb::none());
    }
    const nb::kwargs& options_;
};

void raise(const RpcError& error, const char* kind, nb::object may_have_run) {
    const nb::object exception =
        nb::module_::import_("shared_tensor.errors")
            .attr("_make")(kind, error.code(), error.message(), error.data(), error.what(), std::move(may_have_run));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const ProtocolFailure& error) {
        raise(error, "ProtocolFailure", nb::bool_(error.may_have_run()));
    } catch (const TransportFailure& error) {
        raise(error, "TransportFailure", nb::bool_(error.may_have_run()));
    } catch (const Cancelled& error) {
        raise(error, "Cancelled", nb::bool_(error.may_have_run()));
    } catch (const ShuttingDown& error) {
        raise(error, "ShuttingDown", nb::bool_(error.may_have_run()));
    } catch (const TensorExpired& error) {
        raise(error, "TensorExpired", nb::none());
    } catch (const ResultMismatch& error) {
        raise(error, "ResultMismatch", nb::none());
    } catch (const RpcError& error) {
        raise(error, "", nb::none());
    } catch (const InvalidValue& error) {
        PyErr_SetString(PyExc_TypeError, error.what());
    } catch (const CancelledError& error) {
        raise(Cancelled(static_cast<int>(ErrorCode::cancelled), error.what()), "Cancelled", nb::none());
    }
}

}  // namespace

DType dtype_of(const std::string& name) {
    if (const auto dtype = parse_dtype(name)) return *dtype;
    throw nb::value_error(("no dtype has this name: " + name + "; use one like 'float32'").c_str());
}

ClientOptions client_options(const nb::kwargs& options) {
    const Keywords given(options);
    ClientOptions made;
    given.read("url", made.url);
    given.read("token", made.token);
    given.read("connections", made.connections);
    given.read_time("connect_timeout", made.connect_timeout);
    given.read_time("wait_for_server", made.wait_for_server);
    given.read("accept", made.accept);
    given.read("local_socket", made.local_socket);
    given.read("devices", made.devices);
    given.read("compression", made.compression.codings);
    given.read("compression_level", made.compression.level);
    given.read("authorities", made.tls.authorities);
    given.read("certificate", made.tls.certificate);
    given.read("key", made.tls.key);
    Backoff backoff;
    given.read("tries", backoff.tries);
    given.read_time("first_delay", backoff.initial);
    given.read_time("longest_delay", backoff.longest);
    bool random_delays = true;
    given.read("random_delays", random_delays);
    if (!random_delays) backoff.random = [] { return 1.0; };
    made.retry = exponential_backoff(std::move(backoff));
    return made;
}

CallOptions call_options(const nb::kwargs& options) {
    const Keywords given(options);
    CallOptions made;
    given.read_time("timeout", made.timeout);
    given.read("session", made.session);
    given.read("traceparent", made.traceparent);
    given.read("transport", made.require);
    given.read("idempotent", made.idempotent);
    given.read("idempotency_key", made.idempotency_key);
    given.read_time("task_ttl", made.task_ttl);
    given.read_time("task_deadline", made.task_deadline);
    return made;
}

NodeOptions node_options(const nb::kwargs& options) {
    const Keywords given(options);
    NodeOptions made;
    given.read("host", made.server.host);
    given.read("port", made.server.port);
    given.read("token", made.client.token);
    if (!made.client.token.empty()) made.server.tokens = {{"node", made.client.token}};
    given.read("insecure", made.server.insecure);
    given.read("local_socket", made.client.local_socket);
    given.read("certificate", made.server.tls.certificate);
    given.read("key", made.server.tls.key);
    given.read("authorities", made.client.tls.authorities);
    given.read("inbox_messages", made.inbox_messages);
    given.read("inbox_bytes", made.inbox_bytes);
    given.read_time("push_timeout", made.push_timeout);
    return made;
}

nb::dict status_of(const TaskStatus& status) {
    nb::dict fields;
    fields["id"] = status.id;
    fields["method"] = status.method;
    fields["state"] = to_string(status.state);
    fields["fraction"] = status.fraction ? nb::cast(*status.fraction) : nb::none();
    fields["message"] = status.message;
    fields["created_at"] = status.created_at;
    fields["updated_at"] = status.updated_at;
    fields["error"] = status.error;
    return fields;
}

nb::dict receipt_of(const Receipt& receipt) {
    nb::list transports;
    for (const Receipt::Transport& transport : receipt.transports)
        transports.append(nb::make_tuple(transport.name, transport.tensors, transport.copied));
    nb::dict fields;
    fields["request_id"] = receipt.request_id;
    fields["tries"] = receipt.tries;
    fields["transports"] = transports;
    fields["bytes_copied"] = receipt.bytes_copied;
    fields["queue"] = receipt.queue ? nb::cast(to_seconds(*receipt.queue)) : nb::none();
    fields["run"] = receipt.run ? nb::cast(to_seconds(*receipt.run)) : nb::none();
    fields["total"] = to_seconds(receipt.total);
    return fields;
}

nb::object exception_of(const std::exception_ptr& thrown) {
    try {
        translate(thrown, nullptr);
    } catch (nb::python_error& error) {
        return nb::borrow(error.value());
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    const nb::python_error raised;
    return nb::borrow(raised.value());
}

void translate_errors() { nb::register_exception_translator(translate); }

}  // namespace shared_tensor::python
