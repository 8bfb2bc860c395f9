#pragma once

// The element types of tensors that may cross between processes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace shared_tensor {

/// All dtypes of torch that can cross. Quantised types, torch's bit types and its placeholders for narrow integers
/// can't cross.
enum class DType : std::uint8_t {
    bool_,
    uint8,
    uint16,
    uint32,
    uint64,
    int8,
    int16,
    int32,
    int64,
    float16,
    bfloat16,
    float32,
    float64,
    complex32,
    complex64,
    complex128,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float4_e2m1fn_x2,  ///< two values in a byte, which count as one element, as in torch
};
inline constexpr std::size_t kDTypes = 22;

namespace detail {

struct DTypeRow {
    std::string_view name;
    std::size_t size;
};
/// In the order of DType.
inline constexpr std::array<DTypeRow, kDTypes> kDTypeTable{{
    {"bool", 1},           {"uint8", 1},
    {"uint16", 2},         {"uint32", 4},
    {"uint64", 8},         {"int8", 1},
    {"int16", 2},          {"int32", 4},
    {"int64", 8},          {"float16", 2},
    {"bfloat16", 2},       {"float32", 4},
    {"float64", 8},        {"complex32", 4},
    {"complex64", 8},      {"complex128", 16},
    {"float8_e4m3fn", 1},  {"float8_e4m3fnuz", 1},
    {"float8_e5m2", 1},    {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1}, {"float4_e2m1fn_x2", 1},
}};

}  // namespace detail

/// torch's name of the dtype, as in tensor descriptors: "float32".
constexpr std::string_view name_of(DType dtype) { return detail::kDTypeTable[static_cast<std::size_t>(dtype)].name; }
/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) { return detail::kDTypeTable[static_cast<std::size_t>(dtype)].size; }
constexpr bool is_complex(DType dtype) { return dtype >= DType::complex32 && dtype <= DType::complex128; }
/// Returns nullopt if no dtype has that name.
constexpr std::optional<DType> parse_dtype(std::string_view name) {
    for (std::size_t i = 0; i < kDTypes; ++i) {
        if (detail::kDTypeTable[i].name == name) return static_cast<DType>(i);
    }
    return std::nullopt;
}
/// Whether the elements are real floating-point numbers.
constexpr bool is_floating_point(DType dtype) {
    return (dtype >= DType::float16 && dtype <= DType::float64) || dtype >= DType::float8_e4m3fn;
}

}  // namespace shared_tensor
