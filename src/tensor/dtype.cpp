#include "tensor/dtype.hpp"

#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <array>

namespace shared_tensor::tensor {

namespace {

struct Row {
    DType dtype;
    std::string_view name;
    std::size_t size;
    c10::ScalarType type;
};

using c10::ScalarType;

constexpr std::array<Row, kDTypes> kTable{{
    {DType::bool_, "bool", 1, ScalarType::Bool},
    {DType::uint8, "uint8", 1, ScalarType::Byte},
    {DType::uint16, "uint16", 2, ScalarType::UInt16},
    {DType::uint32, "uint32", 4, ScalarType::UInt32},
    {DType::uint64, "uint64", 8, ScalarType::UInt64},
    {DType::int8, "int8", 1, ScalarType::Char},
    {DType::int16, "int16", 2, ScalarType::Short},
    {DType::int32, "int32", 4, ScalarType::Int},
    {DType::int64, "int64", 8, ScalarType::Long},
    {DType::float16, "float16", 2, ScalarType::Half},
    {DType::bfloat16, "bfloat16", 2, ScalarType::BFloat16},
    {DType::float32, "float32", 4, ScalarType::Float},
    {DType::float64, "float64", 8, ScalarType::Double},
    {DType::complex32, "complex32", 4, ScalarType::ComplexHalf},
    {DType::complex64, "complex64", 8, ScalarType::ComplexFloat},
    {DType::complex128, "complex128", 16, ScalarType::ComplexDouble},
    {DType::float8_e4m3fn, "float8_e4m3fn", 1, ScalarType::Float8_e4m3fn},
    {DType::float8_e4m3fnuz, "float8_e4m3fnuz", 1, ScalarType::Float8_e4m3fnuz},
    {DType::float8_e5m2, "float8_e5m2", 1, ScalarType::Float8_e5m2},
    {DType::float8_e5m2fnuz, "float8_e5m2fnuz", 1, ScalarType::Float8_e5m2fnuz},
    {DType::float8_e8m0fnu, "float8_e8m0fnu", 1, ScalarType::Float8_e8m0fnu},
    {DType::float4_e2m1fn_x2, "float4_e2m1fn_x2", 1, ScalarType::Float4_e2m1fn_x2},
}};

constexpr bool is_in_order() {
    for (std::size_t i = 0; i < kTable.size(); ++i) {
        if (static_cast<std::size_t>(kTable[i].dtype) != i) return false;
    }
    return true;
}
static_assert(is_in_order(), "a row's place is its dtype's number");

constexpr const Row& row(DType dtype) { return kTable[static_cast<std::size_t>(dtype)]; }

template <class Match>
std::optional<DType> find(Match match) {
    const auto found = std::find_if(kTable.begin(), kTable.end(), match);
    return found == kTable.end() ? std::nullopt : std::optional(found->dtype);
}

}  // namespace

std::string_view name_of(DType dtype) { return row(dtype).name; }
std::size_t size_of(DType dtype) { return row(dtype).size; }
c10::ScalarType scalar_type(DType dtype) { return row(dtype).type; }
bool is_complex(DType dtype) { return dtype >= DType::complex32 && dtype <= DType::complex128; }

std::optional<DType> parse_dtype(std::string_view name) {
    return find([&](const Row& candidate) { return candidate.name == name; });
}
std::optional<DType> dtype_of(c10::ScalarType type) {
    return find([&](const Row& candidate) { return candidate.type == type; });
}

std::string dtype_names() {
    std::string names;
    for (const Row& each : kTable)
        names.append(names.empty() ? "" : ", ").append(each.name);
    return names;
}

}  // namespace shared_tensor::tensor
