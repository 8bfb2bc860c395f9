// Tensors by DLPack, with libtorch as the other library.

#include <shared_tensor/dlpack.hpp>

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>

#include <shared_tensor/torch.hpp>

using namespace shared_tensor;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A tensor by hand, with a count of how often it was deleted.
struct Handmade {
    int deleted = 0;
    float numbers[6] = {0, 1, 2, 3, 4, 5};
    std::int64_t shape[2] = {2, 3};
    std::int64_t strides[2] = {1, 2};
    DLManagedTensorVersioned managed{};

    Handmade() {
        managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
        managed.manager_ctx = this;
        managed.deleter = [](DLManagedTensorVersioned* done) { ++static_cast<Handmade*>(done->manager_ctx)->deleted; };
        managed.dl_tensor = {numbers, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
    }
};

}  // namespace

TEST_CASE("Every dtype comes from another library and goes to it, without a copy", "[dlpack]") {
    for (std::size_t i = 0; i < kDTypes; ++i) {
        const auto dtype = static_cast<DType>(i);
        INFO(name_of(dtype));
        const at::Tensor theirs = at::empty({3, 4}, at::TensorOptions(scalar_type(dtype)));
        const TensorRef ours = from_dlpack(at::toDLPackVersioned(theirs));
        CHECK(ours.data() == theirs.const_data_ptr());
        CHECK(ours.dtype() == dtype);
        CHECK(ours.bytes() == theirs.nbytes());
        const at::Tensor back = at::fromDLPackVersioned(to_dlpack_versioned(ours));
        CHECK(back.const_data_ptr() == theirs.const_data_ptr());
        CHECK(back.scalar_type() == theirs.scalar_type());
        CHECK(back.sizes() == theirs.sizes());
    }
}

TEST_CASE("Tensors of DLPack without a version cross too, with their strides", "[dlpack]") {
    const at::Tensor theirs = at::arange(24, at::kInt).view({4, 6}).t().slice(0, 1, 5);
    const TensorRef ours = from_dlpack(at::toDLPack(theirs));
    CHECK(at::equal(ours.as<at::Tensor>(), theirs));
    CHECK(at::equal(at::fromDLPack(to_dlpack(ours)), theirs));
}

TEST_CASE("The memory of a DLPack tensor lives as long as the last view of it, on both sides", "[dlpack]") {
    Handmade handmade;
    DLManagedTensor* out = nullptr;
    {
        const TensorRef ours = from_dlpack(&handmade.managed);
        CHECK(reinterpret_cast<const float*>(ours.select(1).data())[2] == 3);
        out = to_dlpack(ours.slice(1, 2));
    }
    CHECK(handmade.deleted == 0);
    CHECK(static_cast<const float*>(out->dl_tensor.data)[0] == 1);
    CHECK(out->dl_tensor.strides[1] == 2);
    out->deleter(out);
    CHECK(handmade.deleted == 1);
}

TEST_CASE("A DLPack tensor that cannot cross is rejected and deleted", "[dlpack]") {
    struct Row {
        const char* word;
        void (*spoil)(Handmade&);
    };
    const Row row = GENERATE(
        Row{"negative", [](Handmade& tensor) { tensor.strides[0] = -1; }},
        Row{"negative", [](Handmade& tensor) { tensor.shape[0] = -2; }},
        Row{"dimensions", [](Handmade& tensor) { tensor.managed.dl_tensor.ndim = -1; }},
        Row{"dtype",
            [](Handmade& tensor) {
                tensor.managed.dl_tensor.dtype = {kDLOpaqueHandle, 64, 1};
            }},
        Row{"4 lanes", [](Handmade& tensor) { tensor.managed.dl_tensor.dtype.lanes = 4; }},
        Row{"device of type 8", [](Handmade& tensor) { tensor.managed.dl_tensor.device.device_type = kDLMetal; }},
        Row{"name the stream", [](Handmade& tensor) { tensor.managed.dl_tensor.device.device_type = kDLCUDA; }},
        Row{"DLPack 7", [](Handmade& tensor) { tensor.managed.version.major = 7; }},
        Row{"counted", [](Handmade& tensor) { tensor.shape[0] = INT64_MAX; }});
    Handmade handmade;
    row.spoil(handmade);
    CHECK_THROWS_WITH(from_dlpack(&handmade.managed), ContainsSubstring(row.word));
    CHECK(handmade.deleted == 1);
}

TEST_CASE("Contiguous and empty DLPack tensors, and those of an offset, are read as they are", "[dlpack]") {
    Handmade handmade;
    handmade.managed.dl_tensor.strides = nullptr;
    handmade.managed.dl_tensor.byte_offset = 8;
    handmade.shape[0] = 1;
    CHECK(reinterpret_cast<const float*>(from_dlpack(&handmade.managed).data())[1] == 3);
    handmade.managed.dl_tensor.data = nullptr;
    handmade.managed.dl_tensor.byte_offset = 0;
    handmade.shape[0] = 0;
    CHECK(from_dlpack(&handmade.managed).elements() == 0);
    CHECK_THROWS_AS(to_dlpack(TensorRef()), std::invalid_argument);
    CHECK_THROWS_AS(from_dlpack(static_cast<DLManagedTensor*>(nullptr)), std::invalid_argument);
    const TensorRef on_gpu(handmade.numbers, DType::float32, {6}, {}, {Device::Kind::cuda, 0});
    CHECK_THROWS_WITH(to_dlpack(on_gpu), ContainsSubstring("name the stream"));
}
