#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <shared_tensor/tensors.hpp>

#include "blocking.hpp"
#include "module.hpp"
#include "options.hpp"
#include "value.hpp"

namespace shared_tensor::python {

namespace {

using nb::literals::operator""_a;
using Metadata = std::map<std::string, std::string>;
using Members = std::vector<std::pair<std::string, TensorRef>>;
using OptionalVersion = std::optional<std::uint64_t>;

struct PyNamedTensors {
    Client client;

    /// `work(names)` with the named tensors of a client whose calls a signal can end.
    template <class Work>
    auto with(Work work) const {
        return blocking_call(nb::none(), client,
                             [&](const Client& stoppable) { return work(NamedTensors(stoppable)); });
    }
};

Members members_of(const nb::dict& tensors) {
    Members members;
    for (auto [name, tensor] : tensors)
        members.emplace_back(nb::cast<std::string>(name), tensor_of(tensor));
    return members;
}

/// `forms`: (name, dtype, shape) of each tensor.
nb::dict empty_set(const PyNamedTensors& self, const nb::list& forms) {
    std::map<std::string, TensorForm> wanted;
    for (const nb::handle form : forms) {
        const auto [name, text, shape] =
            nb::cast<std::tuple<std::string, std::string, std::vector<std::int64_t>>>(form);
        wanted.emplace(name, TensorForm{dtype_of(text), shape});
    }
    nb::dict tensors;
    for (auto& [name, tensor] : self.with([&](const NamedTensors& names) { return names.empty_set(wanted); }))
        tensors[name.c_str()] = Tensor{tensor};
    return tensors;
}

nb::dict dict_of(const NamedTensorInfo& info) {
    nb::dict fields;
    fields["name"] = info.name;
    fields["owner"] = info.owner;
    fields["version"] = info.version;
    fields["bytes"] = info.bytes;
    fields["members"] = info.is_set ? nb::cast(info.members) : nb::none();
    fields["dtype"] = info.is_set ? nb::none() : nb::cast(info.dtype);
    fields["shape"] = info.is_set ? nb::none() : nb::object(nb::tuple(nb::cast(info.shape)));
    fields["published_at"] = info.published_at;
    return fields;
}

/// `report` is None or takes two integers. It is called with the GIL; what it raises ends the transfer.
TransferProgress progress_of(const nb::object& report) {
    if (report.is_none()) return {};
    return [&report](std::uint64_t bytes, std::uint64_t size) {
        const WithGil gil;
        report(bytes, size);
    };
}

/// `remote`: in parallel parts, for servers on other hosts.
nb::tuple publish(const PyNamedTensors& self, const std::string& name, const nb::object& tensors, Metadata metadata,
                  OptionalVersion if_version, OptionalVersion base, OptionalVersion version, bool remote,
                  const nb::object& progress) {
    const PutOptions put{if_version, std::move(metadata), base, version};
    PushOptions push;
    push.put = put;
    push.progress = progress_of(progress);
    const auto send = [&](const auto& content) {
        return self.with([&](const NamedTensors& names) {
            return remote ? names.push(name, content, push) : names.put(name, content, put);
        });
    };
    return tuple_of(nb::isinstance<nb::dict>(tensors) ? send(members_of(nb::cast<nb::dict>(tensors)))
                                                      : send(tensor_of(tensors)));
}

nb::tuple publish_file(const PyNamedTensors& self, const std::string& name, const std::string& path, Metadata metadata,
                       OptionalVersion if_version, OptionalVersion base, OptionalVersion version, bool remote,
                       const nb::object& progress) {
    const PutOptions put{if_version, std::move(metadata), base, version};
    PushOptions push;
    push.put = put;
    push.progress = progress_of(progress);
    return tuple_of(self.with([&](const NamedTensors& names) {
        return remote ? names.push_file(name, path, push) : names.put_file(name, path, put);
    }));
}

NamedTensor get(const PyNamedTensors& self, const std::string& name, OptionalVersion version,
                const std::optional<std::vector<std::string>>& members, const NamedTensor* previous, bool swarm,
                const PyClient* shared_with, bool remote, const nb::object& progress) {
    PullOptions pull;
    if (swarm) pull.swarm.emplace();
    if (shared_with != nullptr) {
        pull.memory = [near = shared_with->client](std::uint64_t bytes) {
            return near.empty_in_shared_memory({static_cast<std::int64_t>(bytes)}, DType::uint8);
        };
    }
    pull.version = version;
    if (previous != nullptr) pull.previous = *previous;
    pull.progress = progress_of(progress);
    return self.with([&](const NamedTensors& names) {
        if (members) return names.get(name, *members, version);
        if (previous != nullptr && !remote) return names.get(name, *previous);
        return remote ? names.pull(name, pull) : names.get(name, version);
    });
}

}  // namespace

nb::tuple tuple_of(const Published& made) {
    return nb::make_tuple(made.name, made.version, made.bytes, made.copied, made.transport);
}

void define_named_tensors(nb::module_& module) {
    nb::class_<NamedTensor>(module, "NamedTensor")
        .def_prop_ro("name", [](const NamedTensor& self) { return self.name(); })
        .def_prop_ro("version", [](const NamedTensor& self) { return self.version(); })
        .def_prop_ro("metadata", [](const NamedTensor& self) { return self.metadata(); })
        .def_prop_ro("is_set", [](const NamedTensor& self) { return self.is_set(); })
        .def("tensor", [](const NamedTensor& self) { return Tensor{self.tensor()}; })
        .def("member", [](const NamedTensor& self, const std::string& name) { return Tensor{self[name]}; })
        .def("names", [](const NamedTensor& self) { return self.names(); })
        .def(
            "save", [](const NamedTensor& self, const std::string& path) { self.save(path); },
            nb::call_guard<WithoutGil>());

    nb::class_<PyNamedTensors>(module, "NamedTensors")
        .def("__init__", [](PyNamedTensors* self, const PyClient& client) { new (self) PyNamedTensors{client.client}; })
        .def("publish", &publish, "name"_a, "tensors"_a, "metadata"_a, "if_version"_a.none(), "base"_a.none(),
             "version"_a.none(), "remote"_a, "progress"_a.none())
        .def("publish_file", &publish_file, "name"_a, "path"_a, "metadata"_a, "if_version"_a.none(), "base"_a.none(),
             "version"_a.none(), "remote"_a, "progress"_a.none())
        .def("empty_set", &empty_set)
        .def("get", &get, "name"_a, "version"_a.none(), "members"_a.none(), "previous"_a.none(), "swarm"_a,
             "shared_with"_a.none(), "remote"_a, "progress"_a.none())
        .def("list",
             [](const PyNamedTensors& self, const std::string& prefix) {
                 nb::list list;
                 for (const auto& info : self.with([&](const NamedTensors& names) { return names.list(prefix); }))
                     list.append(dict_of(info));
                 return list;
             })
        .def("remove",
             [](const PyNamedTensors& self, const std::string& name) {
                 return self.with([&](const NamedTensors& names) { return names.remove(name); });
             })
        .def("watch", [](const PyNamedTensors& self, const std::string& name, std::uint64_t after, double seconds) {
            return self.with(
                [&](const NamedTensors& names) { return names.watch(name, after, from_seconds(seconds)); });
        });
}

}  // namespace shared_tensor::python
