#include "tensor/element.hpp"

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include <shared_tensor/value.hpp>

namespace shared_tensor::tensor {

namespace {

/// Rounds to the nearest value of T, also for types that are narrower than float.
template <class T>
T narrowed(double value) {
    if constexpr (std::floating_point<T>) {
        return static_cast<T>(value);
    } else {
        return T(static_cast<float>(value));
    }
}
template <class T>
double widened(T value) {
    if constexpr (std::floating_point<T>) {
        return value;
    } else {
        return static_cast<float>(value);
    }
}

std::optional<double> number_in(const Json& json) {
    if (json.is_number()) return json.get<double>();
    if (!json.is_string()) return std::nullopt;
    const auto& name = json.get_ref<const std::string&>();
    if (name == "NaN") return std::numeric_limits<double>::quiet_NaN();
    if (name == "Infinity") return std::numeric_limits<double>::infinity();
    if (name == "-Infinity") return -std::numeric_limits<double>::infinity();
    return std::nullopt;
}

template <class T>
bool read_number(const Json& json, T& out) {
    const auto value = number_in(json);
    if (!value) return false;
    constexpr double kMax =
        std::same_as<T, double> ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
    if (std::isfinite(*value) && std::fabs(*value) > kMax) return false;
    out = narrowed<T>(*value);
    const double kept = widened(out);
    return std::isnan(kept) == std::isnan(*value) && std::isinf(kept) == std::isinf(*value) &&
           !(*value < 0 && kept > 0);
}

double parsed(const char* begin, const char* end) {
    double value = 0;
    std::from_chars(begin, end, value);
    return value;
}

/// Returns the double whose shortest text is the shortest text of `value`: 0.1f becomes 0.1.
template <class T>
double shortest(T value) {
    char text[64];
    if constexpr (std::same_as<T, double>) {
        return value;
    } else if constexpr (std::same_as<T, float>) {
        return parsed(text, std::to_chars(text, text + sizeof text, value).ptr);
    } else {
        const auto wide = static_cast<float>(value);
        for (int digits = 1; digits < std::numeric_limits<float>::max_digits10; ++digits) {
            const auto end = std::to_chars(text, text + sizeof text, wide, std::chars_format::general, digits).ptr;
            const double candidate = parsed(text, end);
            // The largest number, rounded up, may be beyond the range of float.
            if (std::fabs(candidate) > std::numeric_limits<float>::max()) continue;
            if (widened(narrowed<T>(candidate)) == static_cast<double>(wide)) return candidate;
        }
        return wide;
    }
}

template <class T>
Json print_number(T value) {
    const double wide = widened(value);
    if (std::isnan(wide)) return "NaN";
    if (std::isinf(wide)) return wide > 0 ? "Infinity" : "-Infinity";
    return shortest(value);
}

template <class T>
bool read_integer(const Json& json, T& out) {
    const auto keep = [&](auto value) {
        if (!std::in_range<T>(value)) return false;
        out = static_cast<T>(value);
        return true;
    };
    if (json.is_number_unsigned()) return keep(json.get<std::uint64_t>());
    if (json.is_number_integer()) return keep(json.get<std::int64_t>());
    if (!json.is_number_float()) return false;
    const double value = json.get<double>();
    if (value != std::floor(value)) return false;
    constexpr double kTwoTo63 = 9223372036854775808.0;
    if (value >= 0) return value < 2 * kTwoTo63 && keep(static_cast<std::uint64_t>(value));
    return value >= -kTwoTo63 && keep(static_cast<std::int64_t>(value));
}

template <class T>
bool read_into(const Json& json, std::byte* out) {
    T value{};
    const bool fits = [&] {
        if constexpr (std::integral<T>) {
            return read_integer(json, value);
        } else {
            return read_number(json, value);
        }
    }();
    if (fits) std::memcpy(out, &value, sizeof value);
    return fits;
}

template <class T>
Json print_from(const std::byte* in) {
    T value{};
    std::memcpy(&value, in, sizeof value);
    if constexpr (std::integral<T>) {
        return value;
    } else {
        return print_number(value);
    }
}

template <class T>
std::string expected() {
    if constexpr (std::integral<T>) {
        return "integer from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
               std::to_string(std::numeric_limits<T>::max());
    } else {
        return "number that the dtype can hold";
    }
}

template <class T>
const ElementCodec* plain() {
    static constexpr ElementCodec kCodec{read_into<T>, print_from<T>, expected<T>};
    return &kCodec;
}

template <class Part>
const ElementCodec* complex() {
    static constexpr ElementCodec kCodec{
        [](const Json& json, std::byte* out) {
            return json.is_array() && json.size() == 2 && read_into<Part>(json[0], out) &&
                   read_into<Part>(json[1], out + sizeof(Part));
        },
        [](const std::byte* in) {
            return Json::array({print_from<Part>(in), print_from<Part>(in + sizeof(Part))});
        },
        [] { return std::string("pair [re, im] of numbers that the dtype can hold"); }};
    return &kCodec;
}

/// Reads and prints a bool as a byte: to read a byte other than 0 and 1 as a C++ bool is undefined behaviour.
const ElementCodec* boolean() {
    static constexpr ElementCodec kCodec{[](const Json& json, std::byte* out) {
                                             if (!json.is_boolean()) return false;
                                             *out = static_cast<std::byte>(json.get<bool>());
                                             return true;
                                         },
                                         [](const std::byte* in) { return Json(*in != std::byte{0}); },
                                         [] { return std::string("true or false"); }};
    return &kCodec;
}

bool is_complex_pair(const Json& json) {
    const auto is_part = [](const Json& part) { return part.is_number() || part.is_string(); };
    return json.is_array() && json.size() == 2 && is_part(json[0]) && is_part(json[1]);
}

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

const ElementCodec* element_codec(DType dtype) {
    switch (dtype) {
        case DType::bool_: return boolean();
        case DType::uint8: return plain<std::uint8_t>();
        case DType::uint16: return plain<std::uint16_t>();
        case DType::uint32: return plain<std::uint32_t>();
        case DType::uint64: return plain<std::uint64_t>();
        case DType::int8: return plain<std::int8_t>();
        case DType::int16: return plain<std::int16_t>();
        case DType::int32: return plain<std::int32_t>();
        case DType::int64: return plain<std::int64_t>();
        case DType::float16: return plain<Float16>();
        case DType::bfloat16: return plain<BFloat16>();
        case DType::float32: return plain<float>();
        case DType::float64: return plain<double>();
        case DType::complex32: return complex<Float16>();
        case DType::complex64: return complex<float>();
        case DType::complex128: return complex<double>();
        case DType::float8_e4m3fn: return plain<Float8E4M3Fn>();
        case DType::float8_e4m3fnuz: return plain<Float8E4M3Fnuz>();
        case DType::float8_e5m2: return plain<Float8E5M2>();
        case DType::float8_e5m2fnuz: return plain<Float8E5M2Fnuz>();
        case DType::float8_e8m0fnu: return plain<Float8E8M0>();
        case DType::float4_e2m1fn_x2: return nullptr;
    }
    return nullptr;
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
