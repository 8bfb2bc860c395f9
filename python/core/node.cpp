#include "module.hpp"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <shared_tensor/node.hpp>

#include "options.hpp"
#include "value.hpp"

namespace shared_tensor::python {

namespace {

using nb::literals::operator""_a;

/// A Node whose methods release the GIL: the threads of its server need the GIL to destroy tensors of Python.
class PyNode {
public:
    explicit PyNode(NodeOptions options) {
        const WithoutGil without_gil;
        node_ = std::make_unique<Node>(std::move(options));
    }
    ~PyNode() {
        const WithoutGil without_gil;
        node_.reset();
    }
    PyNode(const PyNode&) = delete;
    PyNode& operator=(const PyNode&) = delete;

    template <class Work>
    auto without_gil(Work work) const {
        const WithoutGil without_gil;
        return work(*node_);
    }
    void shutdown() {
        const WithoutGil without_gil;
        node_->shutdown();
    }
    std::string url() const { return node_->url(); }

private:
    std::unique_ptr<Node> node_;
};

nb::dict statistics_of(const NodeStatistics& statistics) {
    nb::dict fields;
    fields["published"] = statistics.published;
    fields["pulled"] = statistics.pulled;
    fields["pushed"] = statistics.pushed;
    fields["received"] = statistics.received;
    fields["failed"] = statistics.failed;
    fields["rejected"] = statistics.rejected;
    fields["waiting"] = statistics.waiting;
    fields["peers"] = statistics.peers;
    return fields;
}

/// For each url of another node: the counts of the client that calls it.
nb::dict peers_of(const std::map<std::string, ClientStatistics>& peers) {
    nb::dict by_url;
    for (const auto& [url, statistics] : peers) {
        nb::dict fields;
        fields["requests"] = statistics.requests;
        fields["failures"] = statistics.failures;
        fields["retries"] = statistics.retries;
        fields["bytes_in"] = statistics.bytes_in;
        fields["bytes_out"] = statistics.bytes_out;
        fields["connections_opened"] = statistics.connections_opened;
        fields["connections_reused"] = statistics.connections_reused;
        by_url[nb::str(url.c_str(), url.size())] = fields;
    }
    return by_url;
}

/// Publishes a tensor, or a dict of tensors as a set. Returns the name, the version and the bytes.
nb::tuple publish_value(const PyNode& self, const std::string& name, nb::handle value,
                        const std::map<std::string, std::string>& metadata, std::optional<std::uint64_t> if_version,
                        std::optional<std::uint64_t> base, const Stop& stop) {
    const PutOptions options{.if_version = if_version, .metadata = metadata, .base = base};
    const auto send = [&](const auto& content) {
        const Published made = self.without_gil(
            [&](const Node& node) { return node.publish(name, content, options, stop.source.get_token()); });
        return tuple_of(made);
    };
    if (!nb::isinstance<nb::dict>(value)) return send(tensor_of(value));
    std::map<std::string, TensorRef> set;
    for (const auto& [member, tensor] : nb::cast<nb::dict>(value))
        set.emplace(nb::cast<std::string>(member), tensor_of(tensor));
    return send(set);
}

NamedTensor pull(const PyNode& self, const std::string& url, const std::string& name,
                 std::optional<std::uint64_t> version, std::optional<std::int64_t> first_row,
                 std::optional<std::int64_t> last_row, const Stop& stop) {
    PullOptions options;
    options.version = version;
    options.first_row = first_row;
    options.last_row = last_row;
    return self.without_gil([&](const Node& node) { return node.pull(url, name, options, stop.source.get_token()); });
}

/// (name, tensor), or None after the timeout and after shutdown().
nb::object receive(const PyNode& self, double seconds) {
    const auto message = self.without_gil([&](const Node& node) { return node.receive(from_seconds(seconds)); });
    if (!message) return nb::none();
    return nb::make_tuple(message->name(), Tensor{message->tensor()});
}

/// Memory that is aligned as JAX wants it, so that JAX makes no copy.
std::shared_ptr<std::byte> aligned_memory(std::size_t bytes) {
    constexpr std::align_val_t kAlignment{64};
    return {static_cast<std::byte*>(::operator new(bytes, kAlignment)),
            [](std::byte* memory) { ::operator delete(memory, kAlignment); }};
}

/// Makes a tensor with a copy of the bytes, which are its elements in C order.
Tensor tensor_of_bytes(nb::handle data, std::vector<std::int64_t> shape, const std::string& dtype) {
    const DType numbers = dtype_of(dtype);
    const Buffer buffer(data);
    const std::uint64_t wanted = TensorRef::count_bytes(shape, numbers);
    if (wanted != buffer.size())
        throw std::invalid_argument("a tensor of this shape and dtype has " + std::to_string(wanted) +
                                    " bytes, but the data has " + std::to_string(buffer.size()));
    auto memory = aligned_memory(buffer.size());
    if (buffer.size() > 0) std::memcpy(memory.get(), buffer.data(), buffer.size());
    std::byte* const first = memory.get();
    return Tensor{TensorRef(first, numbers, std::move(shape), {}, {}, std::move(memory))};
}

nb::bytes bytes_of_tensor(const Tensor& tensor) {
    if (tensor.ref.device().kind != Device::Kind::cpu || !tensor.ref.is_contiguous())
        throw std::invalid_argument("only a contiguous tensor on the CPU has bytes: make a copy that is one");
    return nb::bytes(tensor.ref.data(), static_cast<std::size_t>(tensor.ref.bytes()));
}

}  // namespace

void define_node(nb::module_& module) {
    nb::class_<PyNode>(module, "Node")
        .def("__init__", [](PyNode* self, const nb::kwargs& options) { new (self) PyNode(node_options(options)); })
        .def("url", &PyNode::url)
        .def("publish", &publish_value, "name"_a, "value"_a, "metadata"_a, "if_version"_a.none(), "base"_a.none(),
             "stop"_a)
        .def("pull", &pull, "url"_a, "name"_a, "version"_a.none(), "first_row"_a.none(), "last_row"_a.none(), "stop"_a)
        .def(
            "push",
            [](const PyNode& self, const std::string& url, const std::string& name, const Tensor& tensor,
               const Stop& stop) {
                self.without_gil([&](const Node& node) { node.push(url, name, tensor.ref, stop.source.get_token()); });
            },
            "url"_a, "name"_a, "tensor"_a, "stop"_a)
        .def("receive", &receive, "seconds"_a)
        .def("shutdown", &PyNode::shutdown)
        .def("statistics",
             [](const PyNode& self) {
                 return statistics_of(self.without_gil([](const Node& node) { return node.statistics(); }));
             })
        .def("peers", [](const PyNode& self) {
            return peers_of(self.without_gil([](const Node& node) { return node.peers(); }));
        });
    module.def("tensor_of_bytes", &tensor_of_bytes, "data"_a, "shape"_a, "dtype"_a);
    module.def("bytes_of_tensor", &bytes_of_tensor, "tensor"_a);
}

}  // namespace shared_tensor::python
