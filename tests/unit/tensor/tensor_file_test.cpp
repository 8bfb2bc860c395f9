#include "tensor/files/tensor_file.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include <shared_tensor/simulated.hpp>

#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

std::string read(const ElementReader& reader, std::uint64_t offset, std::size_t count) {
    std::string bytes;
    const auto pieces = reader.read(offset, count);
    for (auto piece = pieces->next(); !piece.empty(); piece = pieces->next())
        bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return bytes;
}

std::string whole(const TensorFile& file) {
    std::string text = file.head;
    for (const ElementReader& one : file.elements)
        text += read(one, 0, static_cast<std::size_t>(one.size()));
    return text;
}

}  // namespace

TEST_CASE("Any part of a tensor's elements is read in order, whatever its strides and wherever it lies",
          "[tensor][file]") {
    simulated::enable(1);
    const bool on_device = GENERATE(false, true);
    const TensorRef here = arange<std::int16_t>({5, 6, 7});
    const TensorRef base = on_device ? simulated::to_device(here) : here;
    const std::vector<TensorRef> tensors{base,
                                         transposed(base),
                                         strided(base, {7, 5, 6}, {1, 42, 7}),
                                         strided(base, {5, 6, 3}, {42, 7, 2}),
                                         strided(base.slice(1, 4), {6, 3, 7}, {7, 42, 1}),
                                         strided(base.select(0).select(0), {3}, {3}),
                                         base.select(4).select(5).select(6),
                                         strided(base.slice(2, 3), {4, 6, 7}, {0, 7, 1}),
                                         base.slice(0, 0)};
    for (const TensorRef& tensor : tensors) {
        const std::string wanted = bytes_of(tensor);
        const ElementReader reader(make_handle(tensor));
        REQUIRE(reader.size() == wanted.size());
        CHECK((reader.data() != nullptr) == (!on_device && tensor.is_contiguous() && tensor.elements() > 0));
        for (std::size_t first = 0; first < wanted.size(); first += 1 + first / (on_device ? 4 : 40)) {
            for (std::size_t count = 0; first + count <= wanted.size(); count += 1 + count / (on_device ? 2 : 8))
                REQUIRE(read(reader, first, count) == wanted.substr(first, count));
        }
    }
}

TEST_CASE("Elements are read in pieces, wherever they lie", "[tensor][file]") {
    simulated::enable(1);
    const TensorRef here = arange<double>({3 * (1 << 17) + 5});  // of 3 MiB and 40 bytes
    const TensorRef there = simulated::to_device(here);
    const auto read_pieces = [](const TensorRef& tensor, std::uint64_t offset, std::uint64_t count) {
        ElementPieces pieces(ElementReader(make_handle(tensor)), offset, count);
        std::string bytes;
        for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
            CHECK(piece.size() <= ElementPieces::kPiece);
            bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        }
        CHECK(pieces.next().empty());
        return bytes;
    };
    for (const TensorRef& tensor : {here, there, strided(there, {3 * (1 << 16) + 3}, {2}),
                                    transposed(strided(here, {512, 512})), transposed(strided(there, {512, 512}))}) {
        const std::string wanted = bytes_of(tensor);
        CAPTURE(tensor.rank(), simulated::on_device(tensor));
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
    const TensorRef there = simulated::to_device(zeros(DType::uint8, {4 * kPiece}));
    const auto fill = [&](int value) { std::memset(there.mutable_data(), value, there.bytes()); };
    ElementPieces pieces(ElementReader(make_handle(there)), 0, 4 * kPiece);
    const auto first = [&] {
        const auto piece = pieces.next();
        REQUIRE(piece.size() == kPiece);
        return piece;
    };
    const auto* one = first().data();
    simulated::synchronize();  // what was given to the device is done
    fill(7);
    const auto two = first();
    CHECK(two.front() == std::byte{0});
    CHECK(two.back() == std::byte{0});
    CHECK(two.data() != one);
    simulated::synchronize();
    fill(8);
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
        const TensorRef there = simulated::to_device(zeros(DType::uint8, {4 << 20}));
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

TEST_CASE("A tensor or a set as a file is what is written to one", "[tensor][file]") {
    const auto written = [](const TensorFile& file) {
        std::ostringstream out;
        write(out, file);
        CHECK(file.size == out.str().size());
        return out.str();
    };
    const auto handle = make_handle(transposed(arange<float>({3, 4})));
    const TensorMap tensors{{"a", make_handle(arange<std::uint8_t>({3}))},
                            {"b", make_handle(arange<double>({5}))},
                            {"c", make_handle(zeros(DType::float32, {0, 4}))}};
    const auto npy = file_of(handle, FileForm::npy, "x", {});
    CHECK(whole(npy) == written(npy));
    CHECK(whole(file_of(handle, FileForm::safetensors, "x", {{"step", "3"}})) ==
          written(file_of(TensorMap{{"x", handle}}, {{"step", "3"}})));
    CHECK(whole(file_of(handle, FileForm::raw, "x", {})) == bytes_of(handle->tensor()));
    CHECK(whole(file_of(gather_set(tensors, &plain_block), {})) == written(file_of(tensors, {})));
}

TEST_CASE("Rows are a view, and forms are told by the end of a name", "[tensor][file]") {
    const TensorRef tensor = arange<std::int64_t>({5, 4});
    const auto rows = make_handle(tensor.slice(1, 3));
    CHECK(shape_of(rows) == Shape{2, 4});
    CHECK(rows->tensor().data() == tensor.select(1).data());
    CHECK(form_of_name("a.npy") == FileForm::npy);
    CHECK(form_of_name("a.b.safetensors") == FileForm::safetensors);
    CHECK(form_of_name("a.raw") == FileForm::raw);
    CHECK(form_of_name("a.npyx") == std::nullopt);
    CHECK(suffix_of(FileForm::raw) == ".raw");
}
