// Tensors that are published in shared memory: what is copied, who keeps the memory, and that nobody changes it later.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <fstream>

#include <shared_tensor/node.hpp>
#include <shared_tensor/tensors.hpp>

#include "integration/client/example_daemon.hpp"
#include "integration/memory/raw_channel.hpp"
#include "support/process.hpp"
#include "support/role.hpp"
#include "support/tensors.hpp"
#include "tensor/files/tensor_file.hpp"
#include "tensor/handle.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

using TensorMap = std::map<std::string, TensorRef>;

constexpr std::int64_t kCount = 1 << 19;  // float32: 2 MiB
constexpr std::uint64_t kBytes = 4 * kCount;
constexpr int kImmutable = local::kSeals | local::kFinalSeals;

void fill(const TensorRef& tensor, float value) {
    std::fill_n(reinterpret_cast<float*>(tensor.mutable_data()), tensor.elements(), value);
}
bool is_all(const TensorRef& tensor, float value) {
    const auto elements = elements_of<float>(tensor);
    return std::all_of(elements.begin(), elements.end(), [&](float one) { return one == value; });
}
TensorRef filled(float value) { return tensor_of(std::vector<float>(kCount, value)); }
TensorMap ordinary(float value) {
    return {{"a", filled(value)}, {"b", filled(value)}, {"c", tensor_of<float>({value})}};
}

/// A daemon and a client that publishes.
struct Publisher {
    explicit Publisher(const Words& options = {}) : server(options) {}

    TensorRef empty() const { return client.empty_in_shared_memory({kCount}, DType::float32); }
    TensorMap empty_set() const {
        return names.empty_set({{"a", {DType::float32, {kCount}}},
                                {"b", {DType::float32, {kCount}}},
                                {"c", {DType::float32, {1}}},
                                {"none", {DType::int64, {0, 3}}}});
    }
    Json memory() const { return server.totals()["shared_memory"]; }
    /// Whether another client reads `value` from shared memory, and as bytes, which the daemon reads.
    bool reads(const std::string& name, float value) const {
        return has(server.client(), name, value) && has(far_client(server.url()), name, value);
    }
    static bool has(const Client& reader, const std::string& name, float value) {
        const NamedTensor named = NamedTensors(reader).get(name);
        if (!named.is_set()) return is_all(named.tensor(), value);
        return is_all(named["a"], value) && is_all(named["b"], value) && is_all(named["c"], value);
    }

    ExampleDaemon server;
    Client client = server.client();
    NamedTensors names{client};
};

/// A tensor.put by hand of the segment `name`, from `offset` on.
Json put(const RawLender& lender, const std::string& segment, std::uint64_t offset = 0,
         std::uint64_t bytes = RawLender::kBytes) {
    const Json tensor = tensor_in(segment, offset, bytes, {bytes / 4});
    return lender.respond("tensor.put", {{"name", segment}, {"tensor", tensor}});
}

/// Memory of a client by hand, filled with `value`, and the mapping through which it was filled.
struct OwnMemory {
    explicit OwnMemory(float value, std::size_t bytes = RawLender::kBytes, std::size_t beyond = 0)
        : size(bytes), fd(::memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
        REQUIRE(::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
        REQUIRE(::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes + beyond)) == 0);
        data = static_cast<float*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        std::fill_n(data, bytes / 4, value);
    }
    ~OwnMemory() { unmap(); }
    OwnMemory(const OwnMemory&) = delete;
    OwnMemory& operator=(const OwnMemory&) = delete;
    void unmap() {
        if (data != nullptr) ::munmap(std::exchange(data, nullptr), size);
    }
    bool seal(int seals) const { return ::fcntl(fd, F_ADD_SEALS, seals) == 0; }
    void offer(RawLender& lender, const std::string& name) const {
        REQUIRE(
            lender.channel.ask("segment.offer", {{"segment", name}, {"size", size}}, {descriptor}).contains("result"));
    }

    std::size_t size;
    int fd;
    std::shared_ptr<const UniqueFd> descriptor = std::make_shared<const UniqueFd>(fd);
    float* data = nullptr;
};

}  // namespace

TEST_CASE("role: publish and wait to be killed", "[.][role]") {
    const Client client = client_of_role();
    const NamedTensors names(client);
    const TensorRef born = client.empty_in_shared_memory({kCount}, DType::float32);
    fill(born, 5);
    const std::uint64_t copied = names.put("copied", ordinary(5)).copied, kept = names.put("kept", born).copied;
    fill(born, 6);
    announce(std::to_string(copied) + ' ' + std::to_string(kept));
    ::pause();
}

TEST_CASE("Tensors of ordinary memory are copied once when they are published", "[memory][publish]") {
    const Publisher publisher;
    const TensorMap set = ordinary(3);
    const Published made = publisher.names.put("set", set);
    CHECK(made.copied == 2 * kBytes + 4);
    CHECK(made.transport == "shm");
    fill(set.at("a"), 4);
    CHECK(publisher.reads("set", 3));
    const TensorRef turned = transposed(strided(arange<float>({kCount}), {2, kCount / 2}));
    CHECK(publisher.names.put("turned", turned).copied == kBytes);
    CHECK(identical(NamedTensors(publisher.server.client()).get("turned").tensor(), turned));
    CHECK(publisher.memory()["segments"] == 2);
    CHECK(publisher.memory()["segment_bytes"] == 2 * kBytes + 4096 + kBytes);
}

TEST_CASE("Tensors that were made in shared memory are published without a copy", "[memory][publish]") {
    const Publisher publisher;
    const TensorMap set = publisher.empty_set();
    for (const char* name : {"a", "b", "c"})
        fill(set.at(name), 3);
    const TensorRef one = publisher.empty();
    fill(one, 3);
    CHECK(publisher.names.put("set", set).copied == 0);
    const Published made = publisher.names.put("one", one);
    CHECK(made.copied == 0);
    CHECK(made.transport == "shm");
    CHECK(publisher.names.put("again", one).copied == 0);
    CHECK(is_all(one, 3));
    CHECK(publisher.reads("set", 3));
    CHECK(publisher.reads("one", 3));
    CHECK(NamedTensors(publisher.server.client()).get("set")["none"].shape()[1] == 3);
}

TEST_CASE("What a process writes to published tensors is its own, and its later calls and versions have it",
          "[memory][publish]") {
    const Publisher publisher;
    const TensorRef one = publisher.empty();
    const TensorMap set = publisher.empty_set();
    fill(one, 3);
    for (const char* name : {"a", "b", "c"})
        fill(set.at(name), 3);
    REQUIRE(publisher.names.put("one", one).copied == 0);
    REQUIRE(publisher.names.put("set", set).copied == 0);
    fill(one, 4);
    fill(set.at("b"), 4);
    CHECK(publisher.reads("one", 3));
    CHECK(publisher.reads("set", 3));
    CHECK(is_all(publisher.client.call<TensorRef>("scale", one, 2.0), 8));
    CHECK(is_all(publisher.client.call<TensorRef>("scale", set.at("a"), 2.0), 6));
    CHECK(publisher.names.put("next", one).copied == kBytes);
    CHECK(publisher.reads("next", 4));
    CHECK(publisher.names.put("set", set).copied == 2 * kBytes + 4);
    const NamedTensor read = publisher.names.get("set");
    CHECK(is_all(read["a"], 3));
    CHECK(is_all(read["b"], 4));
}

TEST_CASE("A set whose tensors lie apart, share bytes or fill little of their memory is copied once",
          "[memory][publish]") {
    const Publisher publisher;
    const TensorRef one = publisher.empty(), two = publisher.empty();
    fill(one, 3);
    fill(two, 3);
    CHECK(publisher.names.put("apart", TensorMap{{"a", one}, {"b", two}}).copied == 2 * kBytes);
    CHECK(publisher.names.put("tied", TensorMap{{"a", one}, {"b", one}}).copied == 2 * kBytes);
    const TensorRef large = publisher.client.empty_in_shared_memory({3 * kCount}, DType::float32);
    CHECK(publisher.names.put("third", large.slice(0, kCount)).copied == kBytes);
    CHECK(publisher.memory()["segment_bytes"] < 8 * kBytes);
    const TensorRef small = publisher.client.empty_in_shared_memory({1 << 14}, DType::float32);
    fill(small, 3);
    CHECK(publisher.names.put("small", small).copied == 4 << 14);
    fill(small, 4);
    CHECK(publisher.reads("small", 3));
}

TEST_CASE("Memory that a forked child has is copied when it is published", "[memory][publish][fork]") {
    const Publisher publisher;
    const TensorRef one = publisher.empty();
    fill(one, 3);
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    CHECK(publisher.names.put("one", one).copied == kBytes);
    CHECK(publisher.reads("one", 3));
    fill(one, 4);
    CHECK(publisher.reads("one", 3));
    CHECK(is_all(publisher.client.call<TensorRef>("scale", one, 2.0), 8));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

TEST_CASE("What was published stays when its publisher is killed, and goes when its name is removed",
          "[memory][publish]") {
    const Publisher publisher;
    Role role("publish and wait to be killed", {"TEST_URL=" + publisher.server.url()});
    REQUIRE(role.ready());
    CHECK(role.text() == std::to_string(2 * kBytes + 4) + " 0");
    CHECK(publisher.reads("kept", 5));
    const NamedTensor before = publisher.names.get("kept");
    role.kill();
    CHECK(publisher.reads("copied", 5));
    CHECK(publisher.reads("kept", 5));
    CHECK(publisher.memory()["segments"] == 2);
    REQUIRE(publisher.names.remove("copied"));
    REQUIRE(publisher.names.remove("kept"));
    CHECK(is_all(before.tensor(), 5));
    CHECK(eventually([&] { return publisher.memory()["segments"] == 1; }));
}

TEST_CASE("A publisher keeps no memory of what it published", "[memory][publish]") {
    const Publisher publisher;
    const auto descriptors = [] { return Descriptors(::getpid()).all(); };
    const std::size_t before = descriptors();
    for (int version = 1; version <= 20; ++version) {
        const TensorRef born = publisher.empty();
        fill(born, static_cast<float>(version));
        publisher.names.put("born", born);
        publisher.names.put("set", ordinary(static_cast<float>(version)));
    }
    CHECK(publisher.reads("set", 20));
    CHECK(eventually([&] { return publisher.memory()["segments"] == 2; }));
    CHECK(eventually([&] { return descriptors() < before + 10; }));
}

TEST_CASE("A safetensors file is read once, into memory that the server keeps", "[memory][publish]") {
    const Publisher publisher;
    const TemporaryFolder folder;
    const std::string path = folder.file("set.safetensors");
    tensor::TensorMap members;
    for (const auto& [name, tensor] : ordinary(3))
        members[name] = tensor::make_handle(tensor);
    tensor::write_safetensors_file(path, members, {{"step", "7"}});
    CHECK(publisher.names.put_file("set", path).copied == 0);
    std::fstream(path) << std::string(kBytes, '\0');
    CHECK(publisher.reads("set", 3));
    CHECK(publisher.names.get("set").metadata().at("step") == "7");
    CHECK_THROWS(publisher.names.put_file("set", path));
}

TEST_CASE("A node publishes with one copy into memory of older versions, or without a copy",
          "[memory][publish][node]") {
    const Node node, other;
    const auto memory = [&] { return call(node.port(), "server.info")["totals"]["shared_memory"]; };
    const TensorMap set = ordinary(0);
    for (int version = 1; version <= 5; ++version) {
        fill(set.at("b"), static_cast<float>(version));
        CHECK(node.publish("set", set, {.metadata = {{"step", "x"}}}).copied >= 2 * kBytes + 4);
        {
            const NamedTensor read = other.pull(node.url(), "set");
            fill(set.at("b"), -1);
            CHECK(is_all(read["b"], static_cast<float>(version)));
            CHECK(read.metadata().at("step") == "x");
        }
        REQUIRE(eventually([&] { return memory()["leases"] == 0; }));
    }
    // Five versions in two segments, or in three if the reader of one let go of it late.
    CHECK(eventually([&] {
        const Json now = memory();
        return now["segments"] == 1 && (now["idle_segments"] == 1 || now["idle_segments"] == 2);
    }));

    node.publish("one", filled(7));
    const TensorRef received = other.pull(node.url(), "one").tensor();
    const Publisher publisher;
    const TensorRef made = publisher.empty();
    fill(made, 8);
    REQUIRE(publisher.names.put("born", made).copied == 0);
    const TensorRef born = other.pull(publisher.server.url(), "born").tensor();
    CHECK(node.publish("born", born).copied == 0);
    CHECK(is_all(other.pull(node.url(), "born").tensor(), 8));
    fill(born, 9);
    CHECK(node.publish("written", born).copied == kBytes);
    CHECK(is_all(other.pull(node.url(), "written").tensor(), 9));
    CHECK(is_all(other.pull(node.url(), "born").tensor(), 8));
    CHECK(is_all(received, 7));
}

TEST_CASE("A node publishes under the conditions and with the rights of a client", "[memory][publish][node]") {
    const std::string secret = "0123456789abcdef0123456789abcdef", other = "another token of sixteen and more";
    NodeOptions options;
    options.server.tokens = {{"trainer", secret, false}, {"reader", other, false}};
    options.server.tokens[1].allow = {"tensor.get"};
    options.client.token = secret;
    const Node node(options);
    CHECK(node.publish("set", ordinary(1)).version == 1);
    CHECK(node.publish("set", TensorMap{{"b", filled(2)}}, {.base = 1}).copied == kBytes);
    CHECK(is_all(node.pull(node.url(), "set")["a"], 1));
    CHECK(is_all(node.pull(node.url(), "set")["b"], 2));
    const auto rejects = [&](const std::string& name, const PutOptions& how, const std::string& parameter) {
        try {
            node.publish(name, ordinary(1), how);
            FAIL("it is published");
        } catch (const InvalidParams& error) {
            CHECK(Json::parse(error.data())["parameter"] == parameter);
        }
    };
    rejects("set", {.base = 1}, "base");
    rejects("new", {.base = 1}, "base");
    rejects("set", {.if_version = 1}, "if_version");
    rejects("set", {.if_version = 2, .base = 2}, "if_version");
    rejects("set", {.version = 2}, "version");
    rejects("set", {.version = 0}, "version");
    rejects("set/a", {}, "name");
    CHECK_THROWS_AS(node.publish("set", filled(1), {.base = 2}), InvalidParams);
    const TensorRef two = tensor_of(std::vector<std::uint8_t>{2});
    const TensorRef no_bool = two.view(two.mutable_data(), DType::bool_, {1}, {});
    CHECK_THROWS_AS(node.publish("odd", TensorMap{{"a", no_bool}}), InvalidParams);
    CHECK_THROWS_AS(node.publish("odd", no_bool), InvalidParams);
    CHECK(node.publish("set", filled(1), {.if_version = 2, .version = 7}).version == 7);

    for (const std::string& token : {other, std::string(), secret + "0"}) {
        options.client.token = token;
        CHECK_THROWS_AS(Node(options).publish("set", filled(1)), NotAuthorised);
    }
}

TEST_CASE("Immutable memory of a client is kept by the server, without a copy", "[memory][publish][hostile]") {
    const Publisher publisher;
    {
        RawLender lender(publisher.server.daemon.port());
        OwnMemory memory(3);
        memory.unmap();
        REQUIRE(memory.seal(kImmutable));
        memory.offer(lender, "mine");
        CHECK(put(lender, "mine")["result"]["copied"] == 0);
        CHECK(publisher.memory()["segment_bytes"] == RawLender::kBytes);
        REQUIRE(lender.channel.send(
            Json{{"jsonrpc", "2.0"}, {"method", "segment.gone"}, {"params", {{"segments", {"mine"}}}}}.dump()));
    }
    CHECK(publisher.reads("mine", 3));
    CHECK(publisher.memory()["segments"] == 1);
}

TEST_CASE("Memory that its publisher can still change is copied, and what it writes later is not seen",
          "[memory][publish][hostile]") {
    const Publisher publisher;
    RawLender lender(publisher.server.daemon.port());
    OwnMemory memory(3);
    CHECK_FALSE(memory.seal(kImmutable));  // the kernel rejects it: the memory is mapped
    for (const int missing : {F_SEAL_WRITE, F_SEAL_SEAL}) {
        OwnMemory one(3);
        if (missing == F_SEAL_SEAL) one.unmap();
        REQUIRE(one.seal(kImmutable & ~missing));
        const std::string name = "lacks " + std::to_string(missing);
        one.offer(lender, name);
        CHECK(put(lender, name)["result"]["copied"] == RawLender::kBytes);
        if (one.data != nullptr) std::fill_n(one.data, RawLender::kCount, 4.0F);
        CHECK(publisher.reads(name, 3));
    }
}

TEST_CASE("Memory that a client could cut, punch or grow is rejected", "[memory][publish][hostile]") {
    const Publisher publisher;
    RawLender lender(publisher.server.daemon.port());
    for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE}) {
        OwnMemory one(3);
        one.unmap();
        REQUIRE(one.seal(kImmutable & ~missing));
        one.offer(lender, std::to_string(missing));
        const Json answer = put(lender, std::to_string(missing));
        CHECK(code_of(answer) == -32602);
        CHECK_THAT(answer.dump(), ContainsSubstring("must be sealed"));
    }
    OwnMemory punched(3);
    punched.unmap();
    REQUIRE(::fallocate(punched.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096) == 0);
    REQUIRE(punched.seal(kImmutable));
    punched.offer(lender, "punched");
    CHECK(code_of(put(lender, "punched")) == -32602);
    CHECK(publisher.memory()["segments"] == 0);
}

TEST_CASE("A server does not keep memory of which a published tensor is a small part", "[memory][publish][hostile]") {
    const Publisher publisher;
    RawLender lender(publisher.server.daemon.port());
    OwnMemory large(3, 4 * RawLender::kBytes), beyond(3, RawLender::kBytes, 2 * RawLender::kBytes);
    for (OwnMemory* const one : {&large, &beyond}) {
        one->unmap();
        REQUIRE(one->seal(kImmutable));
    }
    large.offer(lender, "large");
    beyond.offer(lender, "beyond");
    CHECK(put(lender, "large")["result"]["copied"] == RawLender::kBytes);
    CHECK(put(lender, "beyond")["result"]["copied"] == RawLender::kBytes);
    CHECK(publisher.memory()["segment_bytes"] == 2 * RawLender::kBytes);
    CHECK(publisher.reads("large", 3));
    CHECK(publisher.reads("beyond", 3));
}

TEST_CASE("Kept memory of clients counts like copies of the server", "[memory][publish][limits]") {
    const Words limit = GENERATE(Words{"--max-shared-bytes", "5000000"}, Words{"--max-named-bytes", "5000000"});
    const Publisher publisher(limit);
    const TensorRef one = publisher.empty(), two = publisher.empty(), three = publisher.empty();
    fill(one, 3);
    CHECK(publisher.names.put("one", one).copied == 0);
    CHECK(publisher.names.put("two", two).copied == 0);
    CHECK_THROWS_WITH(publisher.names.put("three", three), ContainsSubstring(limit.front()));
    CHECK_THROWS_AS(publisher.names.put("three", filled(3)), ServerOutOfMemory);
    REQUIRE(publisher.names.remove("two"));
    CHECK(eventually([&] { return publisher.memory()["segments"] == 1; }));
    CHECK(publisher.names.put("three", filled(3)).version > 0);
    CHECK(publisher.reads("one", 3));
    CHECK(publisher.reads("three", 3));
}
