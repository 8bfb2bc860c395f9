#include "module.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <shared_tensor/shared_memory.hpp>
#include <shared_tensor/stream.hpp>

#include "options.hpp"
#include "value.hpp"

namespace shared_tensor::python {

namespace {

using nb::literals::operator""_a;

struct ItemReader {
    Reader<PyValue> reader;
};

struct ItemWriter {
    Writer<PyValue> writer;
};

}  // namespace

void define_context(nb::module_& module) {
    nb::class_<PyContext>(module, "Context", "The context of a running call. Do not use it after the function's end.")
        .def(
            "progress",
            [](const PyContext& self, double fraction, const std::string& message) {
                const WithoutGil without_gil;
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
                const WithoutGil without_gil;
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
        .def_prop_ro(
            "traceparent", [](const PyContext& self) { return std::string(self.get().caller().traceparent); },
            "The call's span, else its caller's, in the form of W3C Trace Context; empty without both.")
        .def(
            "empty",
            [](const PyContext& self, const nb::iterable& shape, const nb::object& dtype, const nb::object& framework) {
                const nb::module_ convert = nb::module_::import_("shared_tensor._convert");
                const DType parsed = dtype_of(nb::cast<std::string>(convert.attr("dtype_name")(dtype)));
                std::vector<std::int64_t> sizes;
                for (nb::handle size : shape)
                    sizes.push_back(nb::cast<std::int64_t>(size));
                const detail::CurrentContext current(self.get());
                const nb::object tensor = nb::cast(Tensor{empty_in_shared_memory(std::span(sizes), parsed)});
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
            const WithoutGil without_gil;
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
                const WithoutGil without_gil;
                return self.writer.write(value);
            },
            "item"_a.none());
}

}  // namespace shared_tensor::python
