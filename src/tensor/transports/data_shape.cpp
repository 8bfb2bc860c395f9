#include "tensor/transports/data_shape.hpp"

#include <shared_tensor/value.hpp>

namespace shared_tensor::tensor {

namespace {

struct Kinds {
    bool booleans = false, integers = false, others = false;
};

void collect(const Json& json, std::size_t rank, Kinds& kinds) {
    if (rank > 0 && json.is_array()) {
        for (const Json& element : json)
            collect(element, rank - 1, kinds);
    } else {
        (json.is_boolean() ? kinds.booleans : json.is_number_integer() ? kinds.integers : kinds.others) = true;
    }
}

}  // namespace

bool is_complex_pair(const Json& json) {
    const auto is_part = [](const Json& part) { return part.is_number() || part.is_string(); };
    return json.is_array() && json.size() == 2 && is_part(json[0]) && is_part(json[1]);
}

Shape shape_of_data(const Json& data, bool complex) {
    Shape shape;
    for (const Json* node = &data; node->is_array() && !(complex && is_complex_pair(*node)); node = &(*node)[0]) {
        if (shape.size() == kMaxRank) {
            throw InvalidValue("data", "lists nested at most " + std::to_string(kMaxRank) + " deep", "deeper ones");
        }
        shape.push_back(static_cast<std::int64_t>(node->size()));
        if (node->empty()) break;
    }
    return shape;
}

DType dtype_of_data(const Json& data, std::size_t rank) {
    Kinds kinds;
    collect(data, rank, kinds);
    if (kinds.others) return DType::float32;
    if (kinds.integers) return DType::int64;
    return kinds.booleans ? DType::bool_ : DType::float32;
}

}  // namespace shared_tensor::tensor
