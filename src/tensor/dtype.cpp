#include "tensor/dtype.hpp"

namespace shared_tensor::tensor {

std::string dtype_names() {
    std::string names;
    for (const auto& row : shared_tensor::detail::kDTypeTable)
        names.append(names.empty() ? "" : ", ").append(row.name);
    return names;
}

}  // namespace shared_tensor::tensor
