#pragma once

#include <cstdint>

#include "protocol/codec/value.hpp"

namespace shared_tensor::runtime {

/// Throws InvalidValue unless the result of a batched function has one row for each of `rows` rows of its arguments:
/// it is null, a tensor with as many rows, a list of as many elements without tensors, or a list or object of these.
void check_rows(const codec::Value& result, std::int64_t rows);

enum class Views { allowed, copied };
/// Returns the rows `first` to `last` (not included) of a result that passed check_rows(). Its tensors are views, or
/// copies if they are in host memory and `views` says so. Throws std::bad_alloc.
codec::Value rows_of(const codec::Value& result, std::int64_t first, std::int64_t last, Views views);

}  // namespace shared_tensor::runtime
