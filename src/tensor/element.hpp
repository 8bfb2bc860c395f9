#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "protocol/codec/value.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

using codec::Json;

/// Reads and prints one element as JSON: true or false, an integer, a number ("NaN", "Infinity", "-Infinity" where the
/// type has them), [re, im] for complex types. A number prints in the shortest form that reads back as the same value.
struct ElementCodec {
    /// Writes the element to `out`. Returns false if the JSON value does not fit the type.
    bool (*read)(const Json& json, std::byte* out);
    Json (*print)(const std::byte* in);
    std::string (*expected)();
};

/// Returns the codec of a dtype; nullptr for float4_e2m1fn_x2, which has two values in one byte.
const ElementCodec* element_codec(DType dtype);

/// Infers the shape of nested lists, for a descriptor without a shape. With `complex`, a pair [re, im] is one element.
/// Only the first list of each level is inspected: ragged lists are rejected later, when they are read.
/// Throws InvalidValue if the lists are nested more than kMaxRank deep.
Shape shape_of_data(const Json& data, bool complex);

/// Infers the dtype of nested lists: bool if all elements are true or false, int64 if all are integers, else float32.
/// Without elements: float32. Booleans beside numbers fit no dtype: they are rejected later, when they are read.
DType dtype_of_data(const Json& data, std::size_t rank);

/// Which patterns of a small float are infinities and NaNs.
enum class Specials {
    ieee,           ///< the largest exponent: infinity with mantissa 0, NaN with any other
    nan_only,       ///< no infinity; NaN is the largest exponent with all bits of the mantissa set (OCP's "fn")
    unsigned_zero,  ///< no infinity and no negative zero; NaN is the pattern of negative zero ("fnuz")
};

/// A floating-point number of 8 or 16 bits as it is in a tensor: sign, exponent, mantissa. Conversion from float rounds
/// to nearest, ties to even. A value beyond the range becomes infinity, or NaN if the format has no infinity.
/// Formats: IEEE 754 binary16, bfloat16, and those of OCP's "8-bit floating point specification" with torch's variants.
template <class Bits, int kExponentBits, int kMantissaBits, int kBias, Specials kSpecials>
struct SmallFloat {
    Bits bits = 0;

    SmallFloat() = default;
    explicit SmallFloat(float value) : bits(encoded(value)) {}

    operator float() const {  // NOLINT(*-explicit-*): no value is lost
        const bool negative = (bits >> (kExponentBits + kMantissaBits) & 1) != 0;
        const int exponent = bits >> kMantissaBits & kMaxExponent;
        const int mantissa = bits & kMaxMantissa;
        if (is_nan(negative, exponent, mantissa)) return std::numeric_limits<float>::quiet_NaN();
        float magnitude = std::numeric_limits<float>::infinity();
        if (kSpecials != Specials::ieee || exponent != kMaxExponent) {
            const int significand = exponent == 0 ? mantissa : mantissa + (1 << kMantissaBits);
            magnitude =
                std::ldexp(static_cast<float>(significand), (exponent == 0 ? 1 : exponent) - kBias - kMantissaBits);
        }
        return negative ? -magnitude : magnitude;
    }

private:
    static constexpr int kMaxExponent = (1 << kExponentBits) - 1, kMaxMantissa = (1 << kMantissaBits) - 1;
    static constexpr int kSign = 1 << (kExponentBits + kMantissaBits);

    static bool is_nan(bool negative, int exponent, int mantissa) {
        if (kSpecials == Specials::unsigned_zero) return negative && exponent == 0 && mantissa == 0;
        if (exponent != kMaxExponent) return false;
        return kSpecials == Specials::ieee ? mantissa != 0 : mantissa == kMaxMantissa;
    }
    static constexpr int kNaN = kSpecials == Specials::ieee ? kMaxExponent << kMantissaBits | 1 << (kMantissaBits - 1)
                                : kSpecials == Specials::nan_only ? kSign - 1
                                                                  : kSign;
    /// The smallest positive pattern that is not a finite number.
    static constexpr int kEnd = kSpecials == Specials::ieee       ? kMaxExponent << kMantissaBits
                                : kSpecials == Specials::nan_only ? kSign - 1
                                                                  : kSign;

    static Bits encoded(float value) {
        if (std::isnan(value)) return static_cast<Bits>(kNaN);
        const int sign = std::signbit(value) ? kSign : 0;
        int pattern = value == 0 ? 0 : kEnd;
        if (std::isfinite(value) && value != 0) {
            int exponent = 0;
            static_cast<void>(std::frexp(value, &exponent));
            // `units` is the value in units in the last place, of its own exponent or of the smallest exponent.
            exponent = std::max(exponent - 1 + kBias, 1);
            const float units = std::ldexp(std::fabs(value), kBias + kMantissaBits - exponent);
            // This sum also has the right exponent if rounding carries, and for subnormal numbers.
            pattern = ((exponent - 1) << kMantissaBits) + static_cast<int>(std::nearbyint(units));
        }
        if (pattern >= kEnd) return static_cast<Bits>(kSpecials == Specials::ieee ? sign | kEnd : kNaN);
        if (kSpecials == Specials::unsigned_zero && pattern == 0) return 0;
        return static_cast<Bits>(sign | pattern);
    }
};

using Float16 = SmallFloat<std::uint16_t, 5, 10, 15, Specials::ieee>;
using BFloat16 = SmallFloat<std::uint16_t, 8, 7, 127, Specials::ieee>;
using Float8E4M3Fn = SmallFloat<std::uint8_t, 4, 3, 7, Specials::nan_only>;
using Float8E4M3Fnuz = SmallFloat<std::uint8_t, 4, 3, 8, Specials::unsigned_zero>;
using Float8E5M2 = SmallFloat<std::uint8_t, 5, 2, 15, Specials::ieee>;
using Float8E5M2Fnuz = SmallFloat<std::uint8_t, 5, 2, 16, Specials::unsigned_zero>;

/// A power of two without a sign: 2^(bits - 127); 255 is NaN. Format: OCP's "microscaling formats specification".
struct Float8E8M0 {
    std::uint8_t bits = 0;

    Float8E8M0() = default;
    /// Rounds to nearest, ties to even, and drops the sign.
    explicit Float8E8M0(float value) {
        const auto pattern = std::bit_cast<std::uint32_t>(value);
        constexpr std::uint32_t kMantissa = 0x7FFFFF, kHalf = 0x400000;
        const std::uint32_t exponent = pattern >> 23 & 0xFF, rest = pattern & kMantissa;
        const bool up = exponent != 0xFF && (rest > kHalf || (rest == kHalf && exponent > 0));
        bits = static_cast<std::uint8_t>(exponent + (up ? 1 : 0));
    }
    operator float() const {  // NOLINT(*-explicit-*)
        return bits == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, bits - 127);
    }
};

}  // namespace shared_tensor::tensor
