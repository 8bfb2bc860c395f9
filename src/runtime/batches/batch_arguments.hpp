#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <shared_tensor/function.hpp>

#include "protocol/codec/json_source.hpp"
#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/error.hpp"
#include "runtime/functions/arguments.hpp"

namespace shared_tensor::runtime {

/// The arguments of a call that can be joined with others.
struct BatchArguments {
    std::string key;                                            ///< calls with equal keys can be joined
    std::int64_t rows = 0;                                      ///< of each tensor argument
    std::vector<std::shared_ptr<const codec::Value>> values{};  ///< one per parameter; null: not given
};

/// Reads the arguments of a call of a batched function. Call it after bind(), which checks them. Returns nullopt for a
/// call that runs alone: without tensors, or with tensors on a device or inside of other arguments. Returns an error
/// -32602 if its tensors have no rows or different numbers of rows.
std::variant<std::optional<BatchArguments>, json_rpc::Error> batch_arguments(const FunctionRecord& function,
                                                                             const ArgumentNodes& nodes,
                                                                             const codec::JsonSource& source);

/// Binds `function` to the joined arguments of the calls, which have equal keys: their tensors are copied one after
/// another along dimension 0. Throws std::bad_alloc.
Binding bind_joined(const FunctionRecord& function, std::span<const BatchArguments* const> calls);

}  // namespace shared_tensor::runtime
