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
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <shared_tensor/sharding.hpp>

#include "blocking.hpp"
#include "module.hpp"
#include "options.hpp"
#include "value.hpp"

namespace shared_tensor::python {

namespace {

using nb::literals::operator""_a;
using Sizes = std::vector<std::int64_t>;
using Dimensions = std::vector<std::optional<std::size_t>>;  // None: replicated

std::vector<Placement1D> placements_of(const Dimensions& dimensions) {
    std::vector<Placement1D> placements;
    for (const auto& one : dimensions)
        placements.push_back({one});
    return placements;
}

/// `tensors`: (local tensor, shape of the whole, placements) by name.
nb::tuple put(const PyClient& client, const std::string& name, const nb::dict& tensors, Sizes mesh, Sizes at,
              const std::string& generation) {
    std::map<std::string, ShardedTensor> parts;
    for (auto [member, one] : tensors) {
        const auto [local, shape, dimensions] = nb::cast<std::tuple<nb::object, Sizes, Dimensions>>(one);
        parts.emplace(nb::cast<std::string>(member), ShardedTensor{tensor_of(local), shape, placements_of(dimensions)});
    }
    const MeshPlace place{std::move(mesh), std::move(at)};
    return tuple_of(blocking_call(nb::none(), client.client, [&](const Client& stoppable) {
        return put_sharded(NamedTensors(stoppable), name, parts, place, generation);
    }));
}

/// Returns the tensors by name, their generation, and the bytes that came from other hosts.
nb::tuple get(const std::vector<std::pair<const PyClient*, std::string>>& publishers,
              const std::map<std::string, Dimensions>& wanted, Sizes mesh, Sizes at,
              std::optional<std::string> generation, double patience) {
    std::map<std::string, std::vector<Placement1D>> placements;
    for (const auto& [name, dimensions] : wanted)
        placements.emplace(name, placements_of(dimensions));
    ShardedRead options{.generation = std::move(generation)};
    options.patience = from_seconds(patience);
    const MeshPlace place{std::move(mesh), std::move(at)};
    std::stop_source stop;
    std::vector<NamedShards> shards;
    for (const auto& [client, name] : publishers) {
        CallOptions stoppable = client->client.options();
        stoppable.stop = stop.get_token();
        shards.push_back({NamedTensors(client->client.with(std::move(stoppable))), name});
    }
    ShardedTensors read = blocking(
        nb::none(), [&] { stop.request_stop(); }, [&] { return get_sharded(shards, placements, place, options); });
    nb::dict tensors;
    for (auto& [name, tensor] : read.tensors)
        tensors[name.c_str()] = Tensor{tensor};
    return nb::make_tuple(tensors, read.generation, read.fetched_bytes);
}

}  // namespace

void define_sharding(nb::module_& module) {
    module.def("put_sharded", &put, "client"_a, "name"_a, "tensors"_a, "mesh"_a, "at"_a, "generation"_a);
    module.def("get_sharded", &get, "publishers"_a, "wanted"_a, "mesh"_a, "at"_a, "generation"_a.none(), "patience"_a);
}

}  // namespace shared_tensor::python
