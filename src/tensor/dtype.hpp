#pragma once

#include <string>

#include <shared_tensor/detail/dtype.hpp>

namespace shared_tensor::tensor {

using shared_tensor::DType;
using shared_tensor::is_complex;
using shared_tensor::kDTypes;
using shared_tensor::name_of;
using shared_tensor::parse_dtype;
using shared_tensor::size_of;

/// Returns the names of all dtypes, for error messages: "bool, uint8, ...".
inline std::string dtype_names() {
    std::string names;
    for (const auto& row : shared_tensor::detail::kDTypeTable)
        names.append(names.empty() ? "" : ", ").append(row.name);
    return names;
}

}  // namespace shared_tensor::tensor
