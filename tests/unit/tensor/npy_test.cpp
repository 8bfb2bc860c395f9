
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cstring>
#include <sstream>

#include "support/tensors.hpp"
#include "tensor/files/tensor_file.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TensorRef read(const std::string& file) {
    const auto owner = std::make_shared<const std::string>(file);
    return read_npy(bytes(*owner), owner);
}

std::string write(const TensorRef& tensor) {
    std::ostringstream out;
    write(out, file_of(make_handle(tensor), FileForm::npy, {}, {}));
    return out.str();
}

/// A file with that dict, as NumPy would write it in version `version`.
std::string file_of(const std::string& dict, const std::string& elements, int version = 1) {
    std::string file("\x93NUMPY");
    file.append({static_cast<char>(version), '\0'});
    const std::size_t length = dict.size();
    for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
        file.push_back(static_cast<char>(length >> (8 * i) & 0xFF));
    return file + dict + elements;
}

std::string rejection(const std::string& file) {
    try {
        read(file);
    } catch (const NpyError& error) {
        return error.what();
    }
    return "(taken)";
}

}  // namespace

TEST_CASE("tensors of every dtype that NumPy has survive a .npy file", "[npy]") {
    const DType dtype = GENERATE(DType::bool_, DType::uint8, DType::uint16, DType::uint32, DType::uint64, DType::int8,
                                 DType::int16, DType::int32, DType::int64, DType::float16, DType::float32,
                                 DType::float64, DType::complex64, DType::complex128);
    const TensorRef tensor = numbered(dtype, {3, 4});
    for (const TensorRef& each :
         {tensor, transposed(tensor), tensor.slice(0, 0), tensor.select(1).select(1), tensor.select(1)})
        CHECK(identical(read(write(each)), each));
}

TEST_CASE("the bytes of a .npy file are NumPy's own", "[npy]") {
    const std::string file = write(arange<std::int32_t>({2, 3}));
    const std::string dict = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }";
    CHECK(file.substr(0, 10) == std::string("\x93NUMPY\1\0\x76\0", 10));
    CHECK(file.substr(10, 118) == dict + std::string(117 - dict.size(), ' ') + "\n");
    CHECK(file.size() == 128 + 24);
    CHECK(write(zeros(DType::uint8, {5})).find("{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }") == 10);
    CHECK(write(zeros(DType::bool_, {})).find("{'descr': '|b1', 'fortran_order': False, 'shape': (), }") == 10);
}

TEST_CASE("the elements of an aligned .npy file are not copied, and keep its bytes alive", "[npy]") {
    auto file = std::make_shared<const std::string>(write(arange<float>({8})));
    const std::weak_ptr<const std::string> watch = file;
    TensorRef tensor = read_npy(bytes(*file), file);
    CHECK(static_cast<const void*>(tensor.data()) == file->data() + 128);
    file.reset();
    CHECK(identical(tensor, arange<float>({8})));
    tensor = {};
    CHECK(watch.expired());
}

TEST_CASE("Fortran order, big endian and format versions 2 and 3 are read", "[npy]") {
    const std::string elements("\0\1\0\2\0\3\0\4\0\5\0\6", 12);
    const TensorRef expected = tensor_of<std::int16_t>({1, 2, 3, 4, 5, 6}, {2, 3});
    for (const int version : {1, 2, 3}) {
        CHECK(identical(read(file_of("{'descr': '>i2', 'fortran_order': False, 'shape': (2, 3), }", elements, version)),
                        expected));
    }
    CHECK(identical(read(file_of("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", elements)),
                    transposed(strided(expected, {3, 2}))));
    const TensorRef complex = read(
        file_of("{'descr': '>c8', 'fortran_order': False, 'shape': (), }", std::string("\x3f\x80\0\0\x40\0\0\0", 8)));
    CHECK(complex.dtype() == DType::complex64);
    CHECK(elements_of<float>(complex) == std::vector<float>{1, 2});  // turned part by part
}

TEST_CASE("files that are broken or hostile are rejected with the reason", "[npy]") {
    const auto dict = [](const std::string& type, const std::string& shape) {
        return "{'descr': " + type + ", 'fortran_order': False, 'shape': " + shape + ", }";
    };
    std::string many_ones;
    for (int i = 0; i < 65; ++i)
        many_ones += "1,";
    struct Row {
        std::string file;
        const char* why;
    };
    const Row rows[] = {
        {"", "not a .npy file: it does not begin with \\x93NUMPY"},
        {"PK\3\4 a zip file", "not a .npy file: it does not begin with \\x93NUMPY"},
        {"\x93NUMPY", ".npy format version 0 is unknown (1 to 3 are)"},
        {std::string("\x93NUMPY\4\0\0\0", 10), ".npy format version 4 is unknown (1 to 3 are)"},
        {std::string("\x93NUMPY\1\0\xFF", 9), "the .npy file ends inside its header"},
        {std::string("\x93NUMPY\1\0\xFF\xFF{}", 12), "the .npy file ends inside its header"},
        {std::string("\x93NUMPY\2\0\xFF\xFF\xFF\xFF{}", 14), "the .npy header is longer than 64 KiB"},
        {file_of("", ""), "bad .npy header: '{' is missing"},
        {file_of("{}", ""), "bad .npy header: descr, fortran_order or shape is missing"},
        {file_of("{'descr': '<f4'", ""), "bad .npy header: a comma or the end of the dict is missing"},
        {file_of("{'descr: 1}", ""), "bad .npy header: a quoted word is missing"},
        {file_of("{'other': 1}", ""), "bad .npy header: the key \"other\" is unknown"},
        {file_of("{'shape': (1,), 'shape': (1,)}", ""), "bad .npy header: a key stands twice"},
        {file_of(dict("'<f4'", "(1,)") + "x", "    "), "bad .npy header: something follows the dict"},
        {file_of("{'fortran_order': Maybe}", ""), "bad .npy header: True or False is missing"},
        {file_of(dict("'<f4'", "(-1,)"), ""), "bad .npy header: a dimension is no integer >= 0"},
        {file_of(dict("'<f4'", "(1 2)"), ""), "bad .npy header: a comma or the end of the shape is missing"},
        {file_of(dict("'<f4'", "(99999999999999999999,)"), ""), "bad .npy header: a dimension is no integer >= 0"},
        {file_of(dict("'|O'", "(1,)"), "pickle"), "the .npy file has elements of type \"|O\", which no tensor has"},
        {file_of(dict("'<U4'", "(1,)"), ""), "the .npy file has elements of type \"<U4\", which no tensor has"},
        {file_of(dict("''", "(1,)"), ""), "the .npy file has elements of type \"\", which no tensor has"},
        {file_of(dict("[('a', '<f4')]", "(1,)"), ""),
         "the .npy file holds a structured array: save its fields one by one"},
        {file_of(dict("'<f4'", "(2,)"), "1234567"),
         "the .npy file ends inside its elements: it holds 7 bytes of them, its shape needs 8"},
        {file_of(dict("'<f4'", "(4294967296, 4294967296)"), ""),
         "the .npy file ends inside its elements: it holds 0 bytes of them"},
        {file_of(dict("'|b1'", "(2,)"), "\1\2"), "the .npy file has bools that are neither 0 nor 1"},
        {file_of(dict("'|u1'", "(" + many_ones + ")"), "x"), "bad .npy header: more than 64 dimensions"},
        {file_of("{'descr': 'u1'[0:], }", ""), "the .npy file has elements of type \"u1\", which no tensor has"},
        // written in other ways that Python reads
        {file_of("{\"shape\":(4,),\"descr\":\"=u1\",\"fortran_order\":False}", "\1\2\3\4"), "(taken)"},
        {file_of("  {'descr': '|u1', 'fortran_order': False, 'shape': (4L,)}  \n", "\1\2\3\4"), "(taken)"},
    };
    for (const Row& row : rows)
        CHECK(rejection(row.file) == row.why);
    CHECK_THROWS_AS(write(zeros(DType::bfloat16, {1})), NpyError);  // NumPy lacks these
    CHECK_THROWS_AS(write(zeros(DType::float8_e4m3fn, {1})), NpyError);
}
