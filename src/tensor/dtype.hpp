#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace c10 {
enum class ScalarType : std::int8_t;
}

namespace shared_tensor::tensor {

/// The element types that may cross: torch's dtypes that have a size. Quantised types, torch's bit types and its
/// placeholders for narrow integers are none of them.
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
    float4_e2m1fn_x2,  ///< two values in a byte, counted as one element as torch does
};
inline constexpr std::size_t kDTypes = 22;

/// torch's own name, as it stands in descriptors.
std::string_view name_of(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);
/// Bytes of an element.
std::size_t size_of(DType dtype);
bool is_complex(DType dtype);
/// All names, for error messages.
std::string dtype_names();

c10::ScalarType scalar_type(DType dtype);
/// Nothing for a type that can't cross.
std::optional<DType> dtype_of(c10::ScalarType type);

}  // namespace shared_tensor::tensor
