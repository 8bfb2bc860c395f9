// The way cuda_ipc on the simulated device, against another process that exports: what a descriptor may say.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <future>
#include <limits>

#include <shared_tensor/bytes.hpp>
#include <shared_tensor/simulated.hpp>
#include <shared_tensor/value.hpp>

#include "exporter.hpp"
#include "support/forked_child.hpp"
#include "support/tensors.hpp"
#include "tensor/device/devices.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

/// This process as the reader of an exporter's tensors.
struct Reader {
    Reader() { simulated::enable(1); }
    TensorRef read(const Json& descriptor, bool borrow = true) {
        TensorTransfer transfer({}, {}, {}, transports);
        transfer.set_borrow(borrow);
        return transfer.import(descriptor)->tensor();
    }
    bool rejects(const Json& descriptor, const std::string& path = "") {
        try {
            read(descriptor);
            return false;
        } catch (const InvalidValue& error) {
            return path.empty() || error.path == path;
        }
    }
    bool nothing_is_open() {
        Devices::of_process().forget(1);
        return eventually([&] { return simulated::statistics().open == 0 && peer.counts->used == peer.counts->done; });
    }

    AnyPeer peer;
    const std::unique_ptr<Transport> transport = make_cuda_ipc_transport(peer);
    const Transports transports{{transport.get()}};
};

Json with(Json descriptor, const char* member, const Json& value) {
    descriptor["cuda_ipc"][member] = value;
    return descriptor;
}

std::string flipped(const std::string& base64, std::size_t bit) {
    IpcBytes bytes;
    REQUIRE(decode_base64_into(base64, bytes.data()));
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    return encode_base64(bytes);
}

}  // namespace

TEST_CASE("A descriptor names handle, offset, size, event, generation and the device", "[devices]") {
    const Exporter exporter;
    const Json& descriptor = exporter.descriptor();
    CHECK(descriptor["device"] == "cuda:" + simulated::uuid(0));
    CHECK(descriptor["lease"] == "l-1");
    const Json& transport = descriptor["cuda_ipc"];
    CHECK(transport.size() == 5);
    CHECK(decoded_base64_size(transport["handle"].get<std::string>()) == 64);
    CHECK(decoded_base64_size(transport["event"].get<std::string>()) == 64);
    CHECK(transport["offset"] == 0);
    CHECK(transport["size"] == 4000);
    CHECK(transport["generation"].is_number_unsigned());
}

TEST_CASE("Another process's tensor is read where it lies, or copied", "[devices]") {
    const Exporter exporter;
    Reader reader;
    const TensorRef lent = reader.read(exporter.descriptor());
    CHECK(identical(lent, arange<float>({1000})));
    const TensorRef copy = reader.read(exporter.descriptor(), false);
    CHECK(identical(copy, lent));
    CHECK(copy.data() != lent.data());
    CHECK(simulated::on_device(copy));
}

TEST_CASE("Whoever lets go of all tensors has closed all blocks", "[devices]") {
    const Exporter exporter;
    Reader reader;
    for (int i = 0; i < 20; ++i)
        CHECK(elements_of<float>(reader.read(exporter.descriptor(), i % 2 == 0).select(i)) == std::vector{float(i)});
    CHECK(reader.nothing_is_open());
}

TEST_CASE("A handle or an event with one bit flipped is rejected, each of 512", "[devices]") {
    const Exporter exporter;
    Reader reader;
    for (const char* member : {"handle", "event"}) {
        const std::string good = exporter.descriptor()["cuda_ipc"][member];
        const std::string path = member == std::string("handle") ? "cuda_ipc.handle" : "";
        for (std::size_t bit = 0; bit < 512; ++bit) {
            CAPTURE(member, bit);
            REQUIRE(reader.rejects(with(exporter.descriptor(), member, flipped(good, bit)), path));
        }
    }
    CHECK(reader.nothing_is_open());
}

TEST_CASE("Offsets and sizes outside of the block are rejected", "[devices]") {
    const Exporter exporter;
    Reader reader;
    const Json good = exporter.descriptor();
    constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint64_t offset :
         {std::uint64_t{4}, std::uint64_t{4000}, std::uint64_t{1} << 40, kHuge, kHuge - 3999})
        CHECK(reader.rejects(with(good, "offset", offset)));
    CHECK(reader.rejects(with(good, "offset", 2), "cuda_ipc.offset"));
    for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{3999}, std::uint64_t{4001}, kHuge})
        CHECK(reader.rejects(with(good, "size", size), "cuda_ipc.size"));
    Json wide = with(good, "size", 8000);
    wide["shape"] = {2000};
    CHECK(reader.rejects(wide, "cuda_ipc.size"));
    Json strided = with(good, "size", 4000);
    strided["shape"] = {2, 2};
    strided["strides"] = {1000, 1};
    CHECK(reader.rejects(strided, "cuda_ipc.size"));
    CHECK(reader.nothing_is_open());
}

TEST_CASE("Members of another type, too many and too few are rejected", "[devices]") {
    const Exporter exporter;
    Reader reader;
    const Json good = exporter.descriptor();
    CHECK(reader.rejects(with(good, "handle", "AAAA"), "cuda_ipc.handle"));
    CHECK(reader.rejects(with(good, "handle", 5)));
    CHECK(reader.rejects(with(good, "event", "AAAA"), "cuda_ipc.event"));
    CHECK(reader.rejects(with(good, "generation", -1), "cuda_ipc.generation"));
    CHECK(reader.rejects(with(good, "generation", "1"), "cuda_ipc.generation"));
    CHECK(reader.rejects(with(good, "more", 1), "cuda_ipc"));
    Json less = good;
    less["cuda_ipc"].erase("event");
    CHECK(reader.rejects(less, "cuda_ipc"));
    less["cuda_ipc"] = 3;
    CHECK(reader.rejects(less, "cuda_ipc"));
}

TEST_CASE("A device that is not seen here is rejected, and so are handles under the name of another", "[devices]") {
    const Exporter exporter;
    Reader reader;
    Json other = exporter.descriptor();
    other["device"] = "cuda:" + simulated::uuid(1);
    CHECK(reader.rejects(other, "device"));
    simulated::enable(2);
    CHECK(reader.rejects(other, "cuda_ipc.handle"));
    simulated::enable(1);
    other["device"] = "cpu";
    CHECK(reader.rejects(other, "device"));
}

TEST_CASE("Another generation of the block is rejected", "[devices]") {
    const Exporter exporter;
    Reader reader;
    const Json good = exporter.descriptor();
    const auto generation = good["cuda_ipc"]["generation"].get<std::uint64_t>();
    CHECK(reader.rejects(with(good, "generation", generation + 1), "cuda_ipc.handle"));
    const TensorRef open = reader.read(good);
    CHECK(reader.rejects(with(good, "generation", generation + 1), "cuda_ipc.generation"));
}

TEST_CASE("A handle of freed memory or of a process that is gone is rejected; an open block stays readable",
          "[devices]") {
    const bool dies = GENERATE(false, true);
    Exporter exporter;
    Reader reader;
    {
        const TensorRef before = reader.read(exporter.descriptor());
        if (dies) {
            exporter.child().signal(SIGKILL);
            exporter.child().wait();
        } else {
            exporter.free();
        }
        CHECK(elements_of<float>(before.select(999)) == std::vector{999.0F});
    }
    REQUIRE(reader.nothing_is_open());
    CHECK(reader.rejects(exporter.descriptor()));
}

TEST_CASE("A message of this process to itself finds its memory without opening it", "[devices]") {
    Reader reader;
    const auto before = simulated::statistics();
    const TensorRef x = simulated::to_device(arange<float>({1000}));
    TensorTransfer transfer({}, only(TransportKind::cuda_ipc), {}, reader.transports);
    const Json descriptor = transfer.describe(transfer.wrap(x.slice(10, 20)));
    CHECK(reader.read(descriptor).data() == x.slice(10, 20).data());
    CHECK(simulated::statistics().opened == before.opened);
}

#if !defined(__SANITIZE_THREAD__)  // it allows no thread after a fork
TEST_CASE("A forked child that destroys its copy of such a tensor does not release the lease", "[devices]") {
    Reader reader;
    const TensorRef x = simulated::to_device(arange<float>({1000}));
    TensorTransfer transfer({}, only(TransportKind::cuda_ipc), {}, reader.transports);
    TensorRef y = reader.read(transfer.describe(transfer.wrap(x)));
    CHECK(in_child([&] {
        y = {};
        std::promise<void> flushed;  // what the end of a tensor does in the background comes before this
        Devices::of_process().in_background([&] { flushed.set_value(); });
        flushed.get_future().wait();
        return reader.peer.counts->done == 0;
    }));
    y = {};
    CHECK(eventually([&] { return reader.peer.counts->done == 1; }));
}
#endif
