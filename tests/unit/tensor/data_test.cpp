
#include <catch2/catch_test_macros.hpp>
#include <shared_tensor/value.hpp>

#include "support/tensors.hpp"
#include "tensor/files/tensor_set.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

codec::TensorPointer import(const std::string& descriptor) { return TensorTransfer().import(Json::parse(descriptor)); }

/// In, and out again as lists.
std::string echo(const std::string& descriptor) {
    TensorTransfer transfer({}, only(TransportKind::data));
    return transfer.describe(transfer.import(Json::parse(descriptor)))["data"].dump();
}

std::string path_of(const std::string& descriptor) {
    try {
        import(descriptor);
    } catch (const InvalidValue& error) {
        return error.path;
    }
    return "(taken)";
}

}  // namespace

TEST_CASE("lists without a shape have the one that they show", "[tensor]") {
    CHECK(shape_of(import(R"({"data":[[1,2,3],[4,5,6]]})")) == Shape{2, 3});
    CHECK(shape_of(import(R"({"data":7})")).empty());
    CHECK(shape_of(import(R"({"data":[]})")) == Shape{0});
    CHECK(shape_of(import(R"({"data":[[],[]]})")) == Shape{2, 0});
    CHECK(shape_of(import(R"({"dtype":"complex64","data":[[1,2],[3,4],[5,6]]})")) == Shape{3});
    CHECK(shape_of(import(R"({"dtype":"complex64","data":[1,2]})")).empty());
}

TEST_CASE("lists without a dtype are bool, int64 or float32 after their elements", "[tensor]") {
    const auto dtype = [](const std::string& data) {
        return name_of(import("{\"data\":" + data + "}")->tensor().dtype());
    };
    CHECK(dtype("[true,false]") == "bool");
    CHECK(dtype("[1,-2]") == "int64");
    CHECK(dtype("[1,2.5]") == "float32");
    CHECK(dtype("[1,\"NaN\"]") == "float32");
    CHECK(dtype("[]") == "float32");
    CHECK(dtype("3") == "int64");
}

TEST_CASE("lists that do not fit are rejected with their place", "[tensor]") {
    struct Row {
        const char* path;
        const char* descriptor;
    };
    const Row rows[] = {
        {"data[1]", R"({"data":[[1,2],[3]]})"},
        {"data[1]", R"({"data":[[1,2],3]})"},
        {"data[1]", R"({"data":[1,[2]]})"},
        {"data[0]", R"({"dtype":"float32","data":[null]})"},
        {"data[0]", R"({"data":[{}]})"},
        {"data", R"({"data":null})"},
        {"data", R"({"data":"abc"})"},
        {"data[0]", R"({"shape":[1,2],"data":[[1]]})"},
        {"data", R"({"shape":[2],"data":[1]})"},
        {"data", R"({"shape":[2],"data":[]})"},
        {"data", R"({"shape":[1000000,1000000],"data":[]})"},
        {"data[1]", R"({"shape":[2,3],"data":[[1,2,3],[]]})"},
        {"data", R"({"shape":[],"data":[1]})"},
        {"data", R"({"shape":[0],"data":[1]})"},
        {"data", R"({"shape":[0,2],"data":[[1,2]]})"},
        {"data[0]", R"({"data":[true,1]})"},
        {"data[1]", R"({"dtype":"uint8","data":[255,256]})"},
        {"data[0]", R"({"dtype":"uint8","data":[-1]})"},
        {"data[0]", R"({"dtype":"int8","data":[-129]})"},
        {"data[0]", R"({"dtype":"int32","data":[1.5]})"},
        {"data[0]", R"({"dtype":"int64","data":[9223372036854775808]})"},
        {"data[0]", R"({"data":[9223372036854775808]})"},
        {"data[0]", R"({"dtype":"int64","data":[9223372036854775808.0]})"},
        {"data[0]", R"({"dtype":"uint64","data":[18446744073709551616.0]})"},
        {"data[0]", R"({"dtype":"uint64","data":[-1.0]})"},
        {"data[0]", R"({"dtype":"int64","data":["NaN"]})"},
        {"data[0]", R"({"dtype":"float32","data":["nan"]})"},
        {"data[0]", R"({"dtype":"float32","data":[1e39]})"},
        {"data[0]", R"({"dtype":"float16","data":[65520]})"},
        {"data[0]", R"({"dtype":"float8_e4m3fn","data":[480]})"},
        {"data[0]", R"({"dtype":"float8_e4m3fn","data":["Infinity"]})"},
        {"data[0]", R"({"dtype":"float8_e8m0fnu","data":[-1]})"},
        {"data[0]", R"({"dtype":"bool","data":[1]})"},
        {"data[0]", R"({"dtype":"complex64","shape":[1],"data":[1]})"},
        {"data[0]", R"({"dtype":"complex64","shape":[1],"data":[[1,2,3]]})"},
        {"data[0]", R"({"dtype":"complex64","shape":[1],"data":[[1,null]]})"},
        {"data", R"({"dtype":"float4_e2m1fn_x2","data":[1]})"},
    };
    for (const Row& row : rows) {
        INFO(row.descriptor);
        CHECK(path_of(row.descriptor) == row.path);
    }
}

TEST_CASE("lists nested deeper than a tensor can be are rejected", "[tensor]") {
    const auto nested = [](std::size_t depth) {
        return "{\"data\":" + std::string(depth, '[') + "1" + std::string(depth, ']') + "}";
    };
    CHECK(path_of(nested(64)) == "(taken)");
    CHECK(path_of(nested(65)) == "data");
}

TEST_CASE("numbers print in the shortest form that reads back the same", "[tensor]") {
    CHECK(echo(R"({"dtype":"float32","data":[0.1,16777216,3.4028234663852886e38,1e-45]})") ==
          "[0.1,16777216.0,3.4028235e+38,1e-45]");
    CHECK(echo(R"({"dtype":"float16","data":[0.1,0.33325,65504,6e-8]})") == "[0.1,0.3333,65500.0,6e-08]");
    CHECK(echo(R"({"dtype":"bfloat16","data":[0.1,1.0078125,3.3895313892515355e38]})") == "[0.1,1.01,3.39e+38]");
    CHECK(echo(R"({"dtype":"float8_e4m3fn","data":[0.1,448]})") == "[0.1,450.0]");
    CHECK(echo(R"({"dtype":"float64","data":[0.1,1e300]})") == "[0.1,1e+300]");
}

TEST_CASE("NaN and infinities travel as strings", "[tensor]") {
    CHECK(echo(R"({"dtype":"float32","data":["NaN","Infinity","-Infinity"]})") == R"(["NaN","Infinity","-Infinity"])");
    CHECK(echo(R"({"dtype":"complex128","data":[["NaN",1],[0,"-Infinity"]]})") == R"([["NaN",1.0],[0.0,"-Infinity"]])");
}

TEST_CASE("integers of 64 bits stay exact", "[tensor]") {
    CHECK(echo(R"({"dtype":"int64","data":[9007199254740993,-9223372036854775808]})") ==
          "[9007199254740993,-9223372036854775808]");
    CHECK(echo(R"({"dtype":"uint64","data":[18446744073709551615]})") == "[18446744073709551615]");
    CHECK(echo(R"({"dtype":"uint64","data":[1e19,9223372036854775808.0]})") ==
          "[10000000000000000000,9223372036854775808]");
    CHECK(echo(R"({"dtype":"int32","data":[3.0]})") == "[3]");
}

TEST_CASE("a tensor without elements is [] whatever its shape", "[tensor]") {
    CHECK(echo(R"({"shape":[1099511627776,0],"data":[]})") == "[]");
    CHECK(shape_of(import(R"({"shape":[2,0,3],"data":[[],[]]})")) == Shape{2, 0, 3});
}
