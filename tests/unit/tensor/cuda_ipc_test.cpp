// cuda_ipc on the simulated device, against another process that exports: what a descriptor may say.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include <shared_tensor/bytes.hpp>
#include <shared_tensor/simulated.hpp>
#include <shared_tensor/value.hpp>

#include "support/forked_child.hpp"
#include "support/role.hpp"
#include "support/tensors.hpp"
#include "tensor/device/devices.hpp"
#include "tensor/device/lent_blocks.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

/// A peer that agrees to everything and counts. The counts outlive it: the thread of the IPC handle cache tells the end
/// of a use while its block lingers, later than the end of a test.
class AnyPeer final : public DevicePeer {
public:
    Viability viable() const override { return {}; }
    bool sees(const std::string&) const override { return true; }
    std::function<void()> use(const std::string&) override {
        ++counts->used;
        return [counts = counts] { ++counts->done; };
    }
    Lending lend(std::shared_ptr<const LentBlock> block) override {
        lent.push_back(std::move(block));
        return {"l-" + std::to_string(lent.size()), nullptr};
    }

    struct Counts {
        std::atomic<int> used{0}, done{0};
    };
    const std::shared_ptr<Counts> counts = std::make_shared<Counts>();
    std::vector<std::shared_ptr<const LentBlock>> lent;
};

}  // namespace

TEST_CASE("role: exporter", "[.role]") {
    const AwaitedSignal next(SIGUSR1);
    simulated::enable(1);
    AnyPeer peer;
    const auto transport = make_cuda_ipc_transport(peer);
    const Transports transports({transport.get()});
    {
        TensorTransfer transfer({}, only(TransportKind::cuda_ipc), {}, transports);
        TensorRef tensor = simulated::to_device(arange<float>({1000}));
        const auto descriptor = transfer.describe(transfer.wrap(tensor));
        tensor = {};  // the lease alone keeps it
        announce(descriptor.dump());
        next.wait();
        peer.lent.clear();
    }
    std::vector<TensorRef> others;
    for (int i = 0; i < 20; ++i)
        others.push_back(simulated::to_device(arange<float>({1000 + i})));
    announce("freed");
    next.wait();
}

namespace {

/// Another process, which exports one tensor, arange(1000) as float32 on a simulated device, until told otherwise.
struct Exporter {
    Exporter() {
        if (!role.ready()) throw std::runtime_error("the exporter did not start: " + role.out());
        descriptor = Json::parse(role.text());
    }
    /// It frees the tensor and allocates others.
    void free() {
        role.child().signal(SIGUSR1);
        REQUIRE(eventually([&] { return role.text() == "freed"; }));
    }

    Role role{"exporter", {}};
    Json descriptor;
};

/// This process as the reader of an exporter's tensors.
struct Reader {
    Reader() { simulated::enable(1); }
    TensorRef read(const Json& descriptor) {
        TensorTransfer transfer({}, {}, {}, transports);
        transfer.set_borrow(true);
        return transfer.import(descriptor)->tensor();
    }
    /// The path of what is wrong with a descriptor.
    std::string rejection(const Json& descriptor) {
        try {
            read(descriptor);
        } catch (const InvalidValue& error) {
            return error.path;
        }
        return "(taken)";
    }
    bool nothing_is_open() {
        Devices::of_process().forget(peer.owner());
        return eventually([&] { return simulated::statistics().open == 0 && peer.counts->used == peer.counts->done; });
    }

    AnyPeer peer;
    const std::unique_ptr<Transport> transport = make_cuda_ipc_transport(peer);
    const Transports transports{{transport.get()}};
};

Json with(Json descriptor, const std::string& member, const Json& value) {
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

TEST_CASE("A handle or an event with one bit flipped is rejected, each of 512", "[devices]") {
    const Exporter exporter;
    Reader reader;
    const std::string member = GENERATE("handle", "event");
    const std::string good = exporter.descriptor["cuda_ipc"][member];
    for (std::size_t bit = 0; bit < 512; ++bit) {
        CAPTURE(member, bit);
        const std::string path = reader.rejection(with(exporter.descriptor, member, flipped(good, bit)));
        REQUIRE((member == "handle" ? path == "cuda_ipc.handle" : path != "(taken)"));
    }
    CHECK(reader.nothing_is_open());
}

TEST_CASE("A descriptor of device memory that is wrong is rejected with its member", "[devices]") {
    const Exporter exporter;
    Reader reader;
    const Json good = exporter.descriptor;
    const auto generation = good["cuda_ipc"]["generation"].get<std::uint64_t>();
    constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
    struct Row {
        const char* member;
        Json value;
        const char* path;
    };
    const Row rows[] = {
        {"generation", generation + 1, "cuda_ipc.handle"},  // before the block is open here
        {"offset", 4, "cuda_ipc.size"},
        {"offset", 4000, "cuda_ipc.size"},
        {"offset", std::uint64_t{1} << 40, "cuda_ipc.offset"},
        {"offset", kHuge, "cuda_ipc.offset"},
        {"offset", kHuge - 3999, "cuda_ipc.offset"},
        {"offset", 2, "cuda_ipc.offset"},
        {"size", 0, "cuda_ipc.size"},
        {"size", 3999, "cuda_ipc.size"},
        {"size", 4001, "cuda_ipc.size"},
        {"size", kHuge, "cuda_ipc.size"},
        {"handle", "AAAA", "cuda_ipc.handle"},
        {"handle", 5, "cuda_ipc.handle"},
        {"event", "AAAA", "cuda_ipc.event"},
        {"generation", -1, "cuda_ipc.generation"},
        {"generation", "1", "cuda_ipc.generation"},
        {"more", 1, "cuda_ipc"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.member, row.value);
        CHECK(reader.rejection(with(good, row.member, row.value)) == row.path);
    }
    Json bad = with(good, "size", 8000);
    bad["shape"] = {2000};
    CHECK(reader.rejection(bad) == "cuda_ipc.size");
    bad = good;
    bad["shape"] = {2, 2};
    bad["strides"] = {1000, 1};
    CHECK(reader.rejection(bad) == "cuda_ipc.size");
    bad = good;
    bad["cuda_ipc"].erase("event");
    CHECK(reader.rejection(bad) == "cuda_ipc");
    bad["cuda_ipc"] = 3;
    CHECK(reader.rejection(bad) == "cuda_ipc");
    bad = good;
    bad["device"] = "cuda:" + simulated::uuid(1);
    CHECK(reader.rejection(bad) == "device");  // it is not seen here
    simulated::enable(2);
    CHECK(reader.rejection(bad) == "cuda_ipc.handle");  // a handle of another device
    simulated::enable(1);
    bad["device"] = "cpu";
    CHECK(reader.rejection(bad) == "device");
    CHECK(reader.nothing_is_open());
    const TensorRef open = reader.read(good);
    CHECK(reader.rejection(with(good, "generation", generation + 1)) == "cuda_ipc.generation");
}

TEST_CASE("A handle of freed memory or of a process that is gone is rejected; an open block stays readable",
          "[devices]") {
    const bool dies = GENERATE(false, true);
    Exporter exporter;
    Reader reader;
    {
        const TensorRef before = reader.read(exporter.descriptor);
        if (dies) {
            exporter.role.kill();
        } else {
            exporter.free();
        }
        CHECK(elements_of<float>(before.select(999)) == std::vector{999.0F});
    }
    REQUIRE(reader.nothing_is_open());
    CHECK(reader.rejection(exporter.descriptor) != "(taken)");
}

TEST_CASE("A message of this process to itself finds its memory without opening it", "[devices]") {
    Reader reader;
    const auto before = simulated::statistics();
    const TensorRef x = simulated::to_device(arange<float>({1000}));
    TensorTransfer transfer({}, only(TransportKind::cuda_ipc), {}, reader.transports);
    (void)transfer.describe(transfer.wrap(x));
    const Json descriptor = transfer.describe(transfer.wrap(x.slice(10, 20)));
    reader.peer.lent.erase(reader.peer.lent.begin());  // the block is lent a second time
    CHECK(reader.read(descriptor).data() == x.slice(10, 20).data());
    const auto generation = descriptor["cuda_ipc"]["generation"].get<std::uint64_t>();
    CHECK(reader.rejection(with(descriptor, "generation", generation + 1)) == "cuda_ipc.generation");
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
        return reader.peer.counts->done == 0;
    }));
    y = {};
    CHECK(eventually([&] { return reader.peer.counts->done == 1; }));
}
#endif
