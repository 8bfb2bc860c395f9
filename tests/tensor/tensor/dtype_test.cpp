#include "tensor/dtype.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include <catch2/catch_test_macros.hpp>

#include <shared_tensor/torch.hpp>

#include "tensor/small_float.hpp"

using namespace shared_tensor;

TEST_CASE("every dtype is found by its name and by torch's number, with torch's size", "[tensor]") {
    for (std::size_t i = 0; i < kDTypes; ++i) {
        const auto dtype = static_cast<DType>(i);
        INFO(name_of(dtype));
        CHECK(parse_dtype(name_of(dtype)) == dtype);
        CHECK(dtype_of(scalar_type(dtype)) == dtype);
        CHECK(size_of(dtype) == c10::elementSize(scalar_type(dtype)));
    }
}

TEST_CASE("types without a plain meaning can't cross", "[tensor]") {
    for (const auto type :
         {c10::ScalarType::QInt8, c10::ScalarType::QUInt8, c10::ScalarType::Bits8, c10::ScalarType::UInt4}) {
        CHECK_FALSE(dtype_of(type).has_value());
    }
    for (const auto* name : {"", "float", "Float32", "float32 ", "qint8", "torch.float32"})
        CHECK_FALSE(parse_dtype(name).has_value());
}

TEST_CASE("every type that torch has with values of its own is in the table", "[tensor]") {
    std::size_t without = 0;
    for (int i = 0; i < static_cast<int>(c10::ScalarType::Undefined); ++i) {
        const auto type = static_cast<c10::ScalarType>(i);
        const std::string name = c10::toString(type);
        const bool placeholder = c10::isQIntType(type) || c10::isBitsType(type) || c10::isBarebonesUnsignedType(type);
        if (placeholder && !dtype_of(type)) ++without;
        if (!placeholder && !dtype_of(type)) {
            INFO(name);
            CHECK((name.starts_with("Int") || name.starts_with("UInt")));
        }
    }
    CHECK(without > 0);
}

namespace {

/// A number of ours and torch's of the same bits are the same one, and every float becomes the same bits in both.
template <class Ours, class Torchs, class Bits>
void compare() {
    std::size_t wrong = 0;
    const auto bits_of = [](Torchs number) {
        Bits bits{};
        std::memcpy(&bits, &number, sizeof bits);
        return bits;
    };
    for (std::uint32_t pattern = 0; pattern < std::uint32_t{1} << (8 * sizeof(Bits)); ++pattern) {
        Ours ours;
        Torchs torchs;
        const auto bits = static_cast<Bits>(pattern);
        ours.bits = bits;
        std::memcpy(&torchs, &bits, sizeof bits);
        const auto a = static_cast<float>(ours), b = static_cast<float>(torchs);
        wrong += (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)
                     ? 0
                     : 1;
    }
    for (std::uint64_t pattern = 0; pattern < std::uint64_t{1} << 32; pattern += 997) {
        const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(pattern));
        const Ours ours(value);
        const Torchs torchs(value);
        const bool both_nan = std::isnan(static_cast<float>(ours)) && std::isnan(static_cast<float>(torchs));
        wrong += both_nan || ours.bits == bits_of(torchs) ? 0 : 1;
    }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("narrow numbers are read and rounded as torch does", "[tensor]") {
    compare<tensor::Float16, c10::Half, std::uint16_t>();
    compare<tensor::BFloat16, c10::BFloat16, std::uint16_t>();
    compare<tensor::Float8E4M3Fn, c10::Float8_e4m3fn, std::uint8_t>();
    compare<tensor::Float8E4M3Fnuz, c10::Float8_e4m3fnuz, std::uint8_t>();
    compare<tensor::Float8E5M2, c10::Float8_e5m2, std::uint8_t>();
    compare<tensor::Float8E5M2Fnuz, c10::Float8_e5m2fnuz, std::uint8_t>();
    compare<tensor::Float8E8M0, c10::Float8_e8m0fnu, std::uint8_t>();
}
