#include "tensor/files/tensor_file.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include <shared_tensor/simulated.hpp>
#include <shared_tensor/torch.hpp>

#include "tensor/handle.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;

namespace {

std::string read(const ElementReader& reader, std::uint64_t offset, std::size_t count) {
    std::string bytes(count, '\0');
    reader.read(offset, std::as_writable_bytes(std::span(bytes)));
    return bytes;
}

std::string bytes_of(const at::Tensor& tensor) {
    const at::Tensor dense = tensor.contiguous();
    return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

std::string whole(const TensorFile& file) {
    std::string text = file.head;
    for (const ElementReader& one : file.elements)
        text += read(one, 0, static_cast<std::size_t>(one.size()));
    return text;
}

}  // namespace

TEST_CASE("Any part of a tensor's elements is read in order, whatever its strides", "[tensor][file]") {
    const at::Tensor base = at::arange(210, at::kShort).view({5, 6, 7});
    const std::vector<at::Tensor> tensors{base,
                                          base.permute({2, 0, 1}),
                                          base.slice(2, 1, 7, 2),
                                          base.slice(0, 1, 4).transpose(0, 1),
                                          base.select(1, 3),
                                          base.select(0, 0).select(0, 0).slice(0, 0, 7, 3),
                                          base[4][5][6],
                                          base.slice(0, 2, 3).expand({4, 6, 7}),
                                          base.slice(0, 0, 0)};
    for (const at::Tensor& tensor : tensors) {
        const std::string wanted = bytes_of(tensor);
        const ElementReader reader(make_handle(tensor));
        CAPTURE(tensor.sizes(), tensor.strides());
        REQUIRE(reader.size() == wanted.size());
        CHECK((reader.data() != nullptr) == (tensor.is_contiguous() && tensor.numel() > 0));
        for (std::size_t first = 0; first < wanted.size(); first += 1 + first / 40) {
            for (std::size_t count = 0; first + count <= wanted.size(); count += 1 + count / 8)
                REQUIRE(read(reader, first, count) == wanted.substr(first, count));
        }
    }
}

TEST_CASE("Elements on a device are read from there", "[tensor][file]") {
    simulated::enable(1);
    const at::Tensor there = simulated::to_device(at::arange(1000, at::kFloat));
    const ElementReader reader(make_handle(there));
    CHECK(reader.data() == nullptr);
    CHECK(read(reader, 0, 4000) == bytes_of(there.cpu()));
    CHECK(read(reader, 401, 77) == bytes_of(there.cpu()).substr(401, 77));
    for (const at::Tensor& strided : {there.view({10, 10, 10}).permute({2, 0, 1}), there.view({20, 50}).t(),
                                      there.view({1, 1000}).slice(1, 0, 1000, 3)}) {
        const ElementReader pieces(make_handle(strided));
        const std::string wanted = bytes_of(strided);
        for (const std::size_t count : {1U, 3U, 64U, 1000U}) {
            for (std::size_t first = 0; first + count <= wanted.size(); first += 1 + count / 3)
                REQUIRE(read(pieces, first, count) == wanted.substr(first, count));
        }
    }
}

TEST_CASE("Elements are read in pieces, wherever they lie", "[tensor][file]") {
    simulated::enable(1);
    const at::Tensor here = at::arange(3 * (1 << 17) + 5, at::kDouble);  // of 3 MiB and 40 bytes
    const at::Tensor there = simulated::to_device(here);
    const auto read_pieces = [](const at::Tensor& tensor, std::uint64_t offset, std::uint64_t count) {
        ElementPieces pieces(ElementReader(make_handle(tensor)), offset, count);
        std::string bytes;
        for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
            CHECK(piece.size() <= ElementPieces::kPiece);
            bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        }
        CHECK(pieces.next().empty());
        return bytes;
    };
    for (const at::Tensor& tensor :
         {here, there, there.slice(0, 0, here.numel(), 2), here.slice(0, 0, 1 << 18).view({512, 512}).t(),
          there.slice(0, 0, 1 << 18).view({512, 512}).t()}) {
        const std::string wanted = bytes_of(tensor);
        CAPTURE(tensor.sizes(), tensor.strides(), simulated::on_device(tensor));
        for (const std::uint64_t offset : {0U, 3U, 1U << 20}) {
            for (const std::uint64_t count :
                 {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{1} << 20, wanted.size() - offset})
                if (offset + count <= wanted.size())
                    CHECK(read_pieces(tensor, offset, count) == wanted.substr(offset, count));
        }
    }
}

TEST_CASE("A device reads the next piece while one is used, and no further", "[tensor][file]") {
    simulated::enable(1);
    constexpr std::int64_t kPiece = ElementPieces::kPiece;
    at::Tensor there = simulated::to_device(at::zeros({4 * kPiece}, at::kByte));
    ElementPieces pieces(ElementReader(make_handle(there)), 0, 4 * kPiece);
    const auto first = [&] {
        const auto piece = pieces.next();
        REQUIRE(piece.size() == kPiece);
        return piece;
    };
    const auto* one = first().data();
    simulated::synchronize();  // what was given to the device is done
    there.fill_(7);
    const auto two = first();
    CHECK(two.front() == std::byte{0});
    CHECK(two.back() == std::byte{0});
    CHECK(two.data() != one);
    simulated::synchronize();
    there.fill_(8);
    const auto three = first();
    CHECK(three.front() == std::byte{7});
    CHECK(three.data() == one);  // there are two of them
    CHECK(first().front() == std::byte{8});
    CHECK(pieces.next().empty());
}

TEST_CASE("What a device still reads is waited for when its reader goes", "[tensor][file]") {
    simulated::enable(1);
    const auto before = simulated::statistics().allocations;
    {
        const at::Tensor there = simulated::to_device(at::zeros({4 << 20}, at::kByte));
        std::atomic<bool> done = false;
        {
            ElementPieces pieces(ElementReader(make_handle(there)), 0, 4 << 20);
            (void)pieces.next();
            simulated::synchronize();
            simulated::launch([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                done = true;
            });
            (void)pieces.next();  // read already; the next read waits behind the work
        }
        CHECK(done);
    }
    CHECK(simulated::statistics().allocations == before);
}

TEST_CASE("A tensor as a file is what is written to one", "[tensor][file]") {
    const at::Tensor tensor = at::arange(12, at::kFloat).view({3, 4}).t();
    const auto handle = make_handle(tensor);
    std::ostringstream npy, safetensors;
    write(npy, file_of(handle, FileForm::npy, "x", {}));
    write(safetensors, file_of(TensorMap{{"x", handle}}, {{"step", "3"}}));
    CHECK(whole(file_of(handle, FileForm::npy, "x", {})) == npy.str());
    CHECK(whole(file_of(handle, FileForm::safetensors, "x", {{"step", "3"}})) == safetensors.str());
    CHECK(whole(file_of(handle, FileForm::raw, "x", {})) == bytes_of(tensor));
    CHECK(file_of(handle, FileForm::npy, "x", {}).size == npy.str().size());
}

TEST_CASE("A set as a file is what is written to one", "[tensor][file]") {
    const TensorMap tensors{{"a", make_handle(at::arange(3, at::kByte))},
                            {"b", make_handle(at::arange(5, at::kDouble))},
                            {"c", make_handle(at::empty({0, 4}, at::kFloat))}};
    const TensorSet set = gather_set(tensors, &plain_block);
    std::ostringstream written;
    write(written, file_of(tensors, {}));
    CHECK(whole(file_of(set, {})) == written.str());
    CHECK(file_of(set, {}).size == written.str().size());
}

TEST_CASE("Rows are a view", "[tensor][file]") {
    const at::Tensor tensor = at::arange(20).view({5, 4});
    const auto rows = rows_of(make_handle(tensor), 1, 3);
    CHECK(shape_of(rows) == Shape{2, 4});
    CHECK(static_cast<const void*>(rows->tensor().data()) == tensor[1].const_data_ptr());
}

TEST_CASE("Forms are told by the end of a name", "[tensor][file]") {
    CHECK(form_of_name("a.npy") == FileForm::npy);
    CHECK(form_of_name("a.b.safetensors") == FileForm::safetensors);
    CHECK(form_of_name("a.raw") == FileForm::raw);
    CHECK(form_of_name("a.npyx") == std::nullopt);
    CHECK(suffix_of(FileForm::raw) == ".raw");
}
