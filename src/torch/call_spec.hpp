#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include <shared_tensor/value.hpp>

namespace shared_tensor::models {

/// How the tensors of a compiled model's arguments or result are arranged in lists and objects: PyTorch's "treespec" as
/// JSON (torch.utils._pytree.treespec_dumps). The leaves are tensors, in order.
struct CallSpec {
    enum class Kind { tensor, list, object };
    Kind kind = Kind::tensor;
    std::vector<std::string> keys{};  ///< keys of an object
    std::vector<CallSpec> children{};
};

/// Throws std::invalid_argument that names the unsupported part.
CallSpec parse_call_spec(const std::string& json);

/// Throws InvalidValue.
void read_tensors(const ValueReader& reader, const CallSpec& spec, std::vector<at::Tensor>& tensors);
/// Writes from tensors[next] on, and advances `next`.
void write_tensors(ValueWriter writer, const CallSpec& spec, const std::vector<at::Tensor>& tensors, std::size_t& next);
void write_spec_schema(ValueWriter writer, const CallSpec& spec);
std::size_t count_tensors(const CallSpec& spec);

}  // namespace shared_tensor::models
