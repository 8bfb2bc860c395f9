#include "tensor/files/tensor_file.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <future>
#include <iterator>
#include <limits>
#include <sstream>

#include "support/daemon.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

/// A file in a folder of its own.
struct OneFile {
    explicit OneFile(const std::string& bytes = {}) { folder.write("x.safetensors", bytes); }
    std::string text() const { return text_of_file(path); }
    bool is_alone() const {
        const std::filesystem::directory_iterator files(folder.path());
        return std::distance(begin(files), end(files)) == 1;
    }

    TemporaryFolder folder;
    const std::string path = folder.file("x.safetensors");
};

std::string number(std::uint64_t value) {
    std::string text;
    for (int i = 0; i < 8; ++i)
        text.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
    return text;
}

std::string file_of(const std::string& json, const std::string& data) { return number(json.size()) + json + data; }

SafetensorsContent read(const std::string& bytes) {
    const OneFile file(bytes);
    return read_safetensors_file(file.path, plain_block);
}

std::string written(const TensorMap& tensors, const Metadata& metadata = {}) {
    std::ostringstream out;
    write(out, tensor::file_of(tensors, metadata));
    return out.str();
}

TensorRef member(const SafetensorsContent& content, const std::string& name) {
    return member_of(content.set, content.set.manifest.at(name))->tensor();
}

}  // namespace

TEST_CASE("tensors of every dtype that safetensors has survive a file", "[safetensors]") {
    for (std::size_t i = 0; i < kDTypes; ++i) {
        const auto dtype = static_cast<DType>(i);
        if (dtype == DType::complex32 || dtype == DType::complex128) continue;
        INFO(name_of(dtype));
        const TensorRef tensor = numbered(dtype, {3, 4});
        const auto back = read(written({{"plain", make_handle(tensor)},
                                        {"turned", make_handle(transposed(tensor))},
                                        {"none", make_handle(tensor.slice(0, 0))}}));
        CHECK(identical(member(back, "plain"), tensor));
        CHECK(identical(member(back, "turned"), transposed(tensor)));
        CHECK(identical(member(back, "none"), tensor.slice(0, 0)));
    }
}

TEST_CASE("values of four bits are counted one by one in a file, by two in torch", "[safetensors]") {
    const TensorRef tensor = numbered(DType::float4_e2m1fn_x2, {2, 4});
    const std::string file = written({{"x", make_handle(tensor)}});
    CHECK_THAT(file, ContainsSubstring(R"("dtype":"F4","shape":[2,8])"));
    CHECK(identical(member(read(file), "x"), tensor));
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
    const auto empty = [](std::int64_t last) {
        return make_handle(TensorRef(nullptr, DType::float4_e2m1fn_x2, {0, last}));
    };
    CHECK_THAT(written({{"x", empty(kMost)}}), ContainsSubstring(std::to_string(2 * kMost)));
    CHECK_THROWS_AS(written({{"x", empty(kMost + 1)}}), SafetensorsError);
}

TEST_CASE("a file has its parts where the format says", "[safetensors]") {
    const std::string file =
        written({{"byte", make_handle(arange<std::uint8_t>({3}))}, {"wide", make_handle(arange<double>({2}))}},
                {{"format", "pt"}, {"note", "\"quoted\""}});
    const std::string json =
        R"({"__metadata__":{"format":"pt","note":"\"quoted\""},"wide":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
        R"("byte":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})";
    const std::size_t size = (8 + json.size() + 63) / 64 * 64 - 8;  // the elements begin at a multiple of 64
    REQUIRE(file.size() == 8 + size + 19);
    CHECK(file.substr(0, 8) == number(size));
    CHECK(file.substr(8, json.size()) == json);
    CHECK(file.substr(8 + json.size(), size - json.size()) == std::string(size - json.size(), ' '));
    const auto back = read(file);
    CHECK(back.metadata == Metadata{{"format", "pt"}, {"note", "\"quoted\""}});
    CHECK(back.set.manifest.at("wide").offset % kMemberAlignment == 0);
}

TEST_CASE("a set without tensors is a file", "[safetensors]") {
    CHECK(written({}) == file_of("{}" + std::string(54, ' '), ""));
    CHECK(read(written({})).set.manifest.empty());
    CHECK(read(file_of("{}", "")).set.manifest.empty());
}

TEST_CASE("a file that breaks a rule is rejected", "[safetensors]") {
    const auto one = [](const char* dtype, const char* shape, const char* offsets, std::size_t data) {
        return file_of(
            std::string(R"({"x":{"dtype":)") + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
            std::string(data, '\1'));
    };
    REQUIRE_NOTHROW(read(one(R"("F32")", "[2]", "[0,8]", 8)));
    struct Bad {
        std::string file, words;
    };
    const std::vector<Bad> table{
        {"", "ends inside its header"},
        {"1234567", "ends inside its header"},
        {number(10), "ends inside its header"},
        {number(3) + "{}", "ends inside its header"},
        {number(std::uint64_t{65} << 20), "at most"},
        {number(UINT64_MAX) + "{}", "at most"},
        {number(UINT64_MAX - 7) + "{}", "at most"},
        {file_of("", ""), "begin with '{'"},
        {file_of(" {}", ""), "begin with '{'"},
        {file_of("[]", ""), "begin with '{'"},
        {file_of("{", ""), "its header"},
        {file_of("{\"a\xff\":1}", ""), "its header"},
        {file_of(R"({"x":5})", ""), "no object"},
        {file_of(
             R"({"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
             ""),
         "its header"},
        {file_of(R"({"x":{"dtype":"U8","shape":[1]}})", "1"), "no object"},
        {file_of(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})", "1"), "no object"},
        {file_of(R"({"__metadata__":{"a":1}})", ""), "no string"},
        {file_of(R"({"__metadata__":"a"})", ""), "no object"},
        {one(R"("F31")", "[2]", "[0,8]", 8), "unknown dtype"},
        {one("5", "[2]", "[0,8]", 8), "no string"},
        {one(R"("F32")", "[2]", "[0,7]", 7), "not as many as its shape says"},
        {one(R"("F32")", "[2]", "[0,8]", 7), "inside the file"},
        {one(R"("F32")", "[2]", "[0,8]", 9), "after the last"},
        {one(R"("F32")", "[2]", "[4,12]", 12), "gap"},
        {one(R"("F32")", "[2]", "[8,0]", 8), "inside the file"},
        {one(R"("F32")", "[2]", "[0]", 8), "pair"},
        {one(R"("F32")", "[2]", "[0,8,8]", 8), "pair"},
        {one(R"("F32")", "[2]", "[0,8.0]", 8), "is not an integer"},
        {one(R"("F32")", "[2]", "[0,-8]", 8), "is not an integer"},
        {one(R"("F32")", "[-2]", "[0,8]", 8), "is not an integer"},
        {one(R"("F32")", "2", "[0,8]", 8), "no array"},
        {one(R"("F32")", "[4294967296,4294967296]", "[0,8]", 8), "not as many"},
        {one(R"("F32")", "[4611686018427387904,4]", "[0,0]", 0), "not as many"},
        {one(R"("F32")", "[9223372036854775808]", "[0,8]", 8), "too large"},
        {one(R"("F32")", "[0,18446744073709551615]", "[0,0]", 0), "too large"},
        {one(R"("F4")", "[3]", "[0,2]", 2), "half a byte"},
        {one(R"("F4")", "[]", "[0,1]", 1), "half a byte"},
        {file_of(R"({"x":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\2"), "neither 0 nor 1"},
        {file_of(
             R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
             "123"),
         "overlap"},
        {file_of(
             R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
             "12"),
         "overlap"},
        {file_of(
             R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"y":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
             "123"),
         "gap"},
    };
    for (const Bad& bad : table) {
        INFO(bad.file);
        CHECK_THROWS_MATCHES(read(bad.file), SafetensorsError, MessageMatches(ContainsSubstring(bad.words)));
    }
}

TEST_CASE("a header that claims too much is rejected before anything is allocated for it", "[safetensors]") {
    const auto none = [](std::uint64_t) -> Block { throw std::bad_alloc(); };
    const OneFile file(file_of(R"({"x":{"dtype":"U8","shape":[99999999999],"data_offsets":[0,99999999999]}})", "1"));
    CHECK_THROWS_AS(read_safetensors_file(file.path, none), SafetensorsError);
}

TEST_CASE("a file is written whole or not at all, and the error says which file or tensor it is", "[safetensors]") {
    CHECK_THROWS_WITH(read_safetensors_file("/nowhere/x.safetensors", plain_block),
                      ContainsSubstring("/nowhere/x.safetensors"));
    CHECK_THROWS_WITH(read_safetensors_file("/dev", plain_block), ContainsSubstring("no regular file"));
    CHECK_THROWS_WITH(write_safetensors_file("/nowhere/x.safetensors", {}, {}),
                      ContainsSubstring("/nowhere/x.safetensors"));
    const OneFile file("before");
    CHECK_THROWS_WITH(write_safetensors_file(file.path, {{"x", make_handle(zeros(DType::complex128, {1}))}}, {}),
                      ContainsSubstring("complex64"));
    CHECK(file.text() == "before");
    CHECK(file.is_alone());
    const TensorMap tensors{{"x", make_handle(arange<std::int64_t>({1000}))}};
    write_safetensors_file(file.path, tensors, {});
    CHECK(file.text() == written(tensors));
    CHECK(file.is_alone());
}

TEST_CASE("of two writers of one file the last one wins", "[safetensors]") {
    const OneFile file;
    const TensorMap few{{"x", make_handle(arange<std::int64_t>({10}))}},
        many{{"x", make_handle(arange<std::int64_t>({100'000}))}};
    const auto write_often = [&](const TensorMap& tensors) {
        for (int i = 0; i < 100; ++i)
            write_safetensors_file(file.path, tensors, {});
    };
    auto other = std::async(std::launch::async, write_often, few);
    CHECK_NOTHROW(write_often(many));
    CHECK_NOTHROW(other.get());
    const std::string end = file.text();
    CHECK((end == written(few) || end == written(many)));
    CHECK(file.is_alone());
}
