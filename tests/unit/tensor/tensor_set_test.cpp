#include "tensor/files/tensor_set.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "protocol/codec/json_source.hpp"
#include "protocol/codec/value.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

TensorMap some_tensors() {
    return {{"b", make_handle(transposed(arange<float>({2, 3})))},
            {"a", make_handle(arange<std::uint8_t>({3}))},
            {"$odd", make_handle(numbered(DType::bool_, {5}))},
            {"none", make_handle(zeros(DType::float64, {0, 4}))},
            {"scalar", make_handle(tensor_of<std::int64_t>({7}, {}))}};
}

codec::Json json_of(const Manifest& manifest) {
    codec::Value value;
    TensorTransfer port;
    codec::JsonSink sink(value, port);
    write_manifest(ValueWriter(sink, sink.root()), manifest);
    return value.json;
}

Manifest read(const std::string& text, std::uint64_t available = 100, std::size_t members = 100) {
    const auto json = codec::Json::parse(text);
    TensorTransfer port;
    const codec::JsonSource source(port);
    return read_manifest(ValueReader(source, codec::JsonSource::node(json), "manifest"), available, members);
}

}  // namespace

TEST_CASE("a set holds its tensors in one allocation, each aligned and with zeros between them", "[tensor_set]") {
    const TensorMap tensors = some_tensors();
    int taken = 0;
    std::optional<TensorSet> set = gather_set(tensors, [&](std::uint64_t bytes) {
        ++taken;
        Block block = plain_block(bytes);
        std::fill_n(block.data, bytes, std::byte{0xee});
        return block;
    });
    CHECK(taken == 1);
    CHECK(is_bytes(set->data));
    CHECK(bytes_of(set->data->tensor()).find('\xee') == std::string::npos);
    CHECK(set->manifest.size() == tensors.size());
    for (const auto& [name, handle] : tensors) {
        INFO(name);
        const Member& member = set->manifest.at(name);
        CHECK(member.offset % kMemberAlignment == 0);
        CHECK(identical(member_of(*set, member)->tensor(), handle->tensor()));
    }
    const TensorRef member = member_of(*set, set->manifest.at("b"))->tensor();
    set.reset();  // a member keeps all of it alive
    CHECK(identical(member, transposed(arange<float>({2, 3}))));
}

TEST_CASE("a set without bytes needs no memory", "[tensor_set]") {
    const auto none = [](std::uint64_t) -> Block { throw std::bad_alloc(); };
    CHECK(gather_set({}, none).manifest.empty());
    const TensorSet empty = gather_set({{"none", make_handle(zeros(DType::float64, {0, 4}))}}, none);
    CHECK(shape_of(member_of(empty, empty.manifest.at("none"))) == Shape{0, 4});
}

TEST_CASE("a manifest survives JSON, names with $ included", "[tensor_set]") {
    const TensorSet set = gather_set(some_tensors(), plain_block);
    const Manifest back = read(json_of(set.manifest).dump(), set.data->bytes());
    REQUIRE(back.size() == set.manifest.size());
    for (const auto& [name, member] : set.manifest) {
        CHECK(back.at(name).dtype == member.dtype);
        CHECK(back.at(name).shape == member.shape);
        CHECK(back.at(name).offset == member.offset);
        CHECK(back.at(name).bytes == member.bytes);
    }
}

TEST_CASE("a manifest that names bytes which are not its own is rejected", "[tensor_set]") {
    CHECK_NOTHROW(read(R"({"a": {"dtype": "float32", "shape": [25], "offset": 0}})"));
    CHECK_NOTHROW(read(R"({"a": {"dtype": "float32", "shape": [0], "offset": 100}})"));
    for (
        const char* json :
        {R"({"a": {"dtype": "float32", "shape": [26], "offset": 0}})",
         R"({"a": {"dtype": "float32", "shape": [1], "offset": 100}})",
         R"({"a": {"dtype": "float32", "shape": [1], "offset": 104}})",
         R"({"a": {"dtype": "float32", "shape": [1], "offset": 2}})",
         R"({"a": {"dtype": "float32", "shape": [1], "offset": -4}})",
         R"({"a": {"dtype": "float32", "shape": [1], "offset": 18446744073709551612}})",
         R"({"a": {"dtype": "float32", "shape": [-1], "offset": 0}})",
         R"({"a": {"dtype": "float32", "shape": [4294967296, 4294967296], "offset": 0}})",
         R"({"a": {"dtype": "float32", "shape": [9223372036854775807], "offset": 0}})",
         R"({"a": {"dtype": "float32", "shape": [1.5], "offset": 0}})",
         R"({"a": {"dtype": "float31", "shape": [1], "offset": 0}})", R"({"a": {"dtype": "float32", "shape": [1]}})",
         R"({"a": {"dtype": "float32", "shape": [1], "offset": 0, "more": 1}})", R"({"a": 5})", R"([])", R"(5)",
         R"({"a": {"dtype": "uint8", "shape": [8], "offset": 0}, "b": {"dtype": "uint8", "shape": [8], "offset": 7}})",
         R"({"a": {"dtype": "uint8", "shape": [8], "offset": 0}, "b": {"dtype": "uint8", "shape": [8], "offset": 0}})"}) {
        INFO(json);
        CHECK_THROWS_AS(read(json), InvalidValue);
    }
    CHECK_THROWS_WITH(read(R"({"a": {"dtype": "uint8", "shape": [1], "offset": 0}, "b": 1})", 100, 1),
                      ContainsSubstring("at most 1 members"));
}

TEST_CASE("a set that came in a message is copied, and its bools are looked at", "[tensor_set]") {
    const TensorRef data = arange<std::uint8_t>({8});
    const auto manifest = read(R"({"x": {"dtype": "uint8", "shape": [4], "offset": 4}})", 8);
    const TensorSet set = copy_set(manifest, make_handle(data), plain_block);
    std::memset(data.mutable_data(), 0, 8);
    CHECK(identical(member_of(set, set.manifest.at("x"))->tensor(), tensor_of<std::uint8_t>({4, 5, 6, 7})));
    const auto bools = read(R"({"x": {"dtype": "bool", "shape": [4], "offset": 4}})", 8);
    CHECK_THROWS_AS(copy_set(bools, make_handle(arange<std::uint8_t>({8})), plain_block), InvalidValue);
}

TEST_CASE("some members of a set are a part of its allocation", "[tensor_set]") {
    const TensorSet set = gather_set(some_tensors(), plain_block);
    const TensorSet part = part_of(set, {{"a", set.manifest.at("a")}, {"b", set.manifest.at("b")}});
    CHECK(part.data->bytes() < set.data->bytes());
    CHECK(identical(member_of(part, part.manifest.at("a"))->tensor(), arange<std::uint8_t>({3})));
    CHECK(identical(member_of(part, part.manifest.at("b"))->tensor(), transposed(arange<float>({2, 3}))));
    CHECK(part_of(set, {{"none", set.manifest.at("none")}}).data->bytes() == 0);
}

TEST_CASE("members of bytes that lie askew are copied", "[tensor_set]") {
    const TensorRef room = zeros(DType::uint8, {13});
    const TensorSet set{read(R"({"x": {"dtype": "float64", "shape": [1], "offset": 0}})", 8),
                        make_handle(room.slice(5, 13))};
    CHECK(elements_of<double>(member_of(set, set.manifest.at("x"))->tensor()) == std::vector{0.0});
}
