#include "tensor/dtype.hpp"

#include <c10/core/ScalarType.h>

#include <catch2/catch_test_macros.hpp>

using namespace shared_tensor::tensor;

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
