#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/tensors.hpp>

// Sets of tensors of which each process of a mesh holds a part, and readers that want other parts.

namespace shared_tensor {

/// How the processes along one dimension of a mesh hold a tensor, as placements of PyTorch's DTensor do.
struct Placement1D {
    /// The dimension of the tensor that is divided among the processes, Shard(dimension); nullopt: each process has the
    /// whole, Replicate().
    std::optional<std::size_t> dimension{};
    friend bool operator==(const Placement1D&, const Placement1D&) = default;
};
inline constexpr Placement1D replicate() { return {}; }
inline constexpr Placement1D shard(std::size_t dimension) { return {dimension}; }

/// The place of one process in a mesh of processes.
struct MeshPlace {
    std::vector<std::int64_t> mesh;  ///< processes along each dimension of the mesh; at least one dimension
    std::vector<std::int64_t> at;    ///< the process's coordinates
};

/// The part of a tensor of `shape` that the process at `place` holds. A dimension of n elements is divided among k
/// processes into parts of ceil(n / k) elements: the last ones are smaller or empty, as those of torch.chunk.
/// Dimensions of the mesh divide one after the other. Throws std::invalid_argument if the numbers do not fit together.
TensorPart part_of(const std::vector<std::int64_t>& shape, const std::vector<Placement1D>& placements,
                   const MeshPlace& place);

/// What one process holds of a tensor.
struct ShardedTensor {
    TensorRef local;                      ///< this process's part
    std::vector<std::int64_t> shape;      ///< of the whole tensor
    std::vector<Placement1D> placements;  ///< one for each dimension of the mesh
};

/// Publishes the parts of this process as a set. Each process of the mesh publishes in its own server, or under a name
/// of its own. `generation` names the state that the parts belong to, such as the number of a training
/// step: readers take only parts of one generation. Throws std::invalid_argument if a part has another shape than its
/// placements give it, and what NamedTensors::put() throws.
Published put_sharded(const NamedTensors& names, std::string_view name,
                      const std::map<std::string, ShardedTensor>& tensors, const MeshPlace& place,
                      const std::string& generation, PutOptions options = {});

/// What one process of the mesh has published.
struct NamedShards {
    NamedTensors names;
    std::string name;
};

struct ShardedRead {
    std::optional<std::string> generation{};  ///< the wanted one; nullopt: any that all publishers have
    /// How long to wait until all publishers have the same generation.
    std::chrono::milliseconds patience{30'000};
    std::size_t connections = 8;  ///< requests at once
};

/// One process's parts, of one generation.
struct ShardedTensors {
    std::map<std::string, TensorRef> tensors;  ///< contiguous, in ordinary memory of this process
    std::string generation;
    std::uint64_t fetched_bytes = 0;  ///< of elements that came from servers of other hosts
};

/// Reads the parts that the process at `place` has of each wanted tensor if it is placed as `wanted` says, whatever the
/// layout of the publishers is. Only the bytes of these parts are moved: from servers of other hosts as requests for
/// rectangles of their parts, from servers of this host as copies from shared memory. If several publishers hold the
/// same part, readers share the work among them. Blocks. Throws UnknownOrExpired if a publisher lacks the name, or if
/// the publishers have no common generation in time; std::invalid_argument if the publishers lack a part or a tensor
/// that is wanted.
ShardedTensors get_sharded(const std::vector<NamedShards>& publishers,
                           const std::map<std::string, std::vector<Placement1D>>& wanted, const MeshPlace& place,
                           const ShardedRead& options = {});

}  // namespace shared_tensor
