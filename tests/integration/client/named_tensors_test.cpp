#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <future>
#include <unordered_map>

#include "client/local/shared_memory.hpp"
#include "integration/cli/run_client.hpp"
#include "integration/client/transfers.hpp"
#include "support/process.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

using TensorMap = std::map<std::string, TensorRef>;

struct Named : Example {
    const NamedTensors names{client};

    int segments() const { return server.totals()["shared_memory"]["segments"]; }
    bool segments_become(int count) const {
        return eventually([&] { return segments() == count; });
    }
};

TensorRef filled(float value, std::int64_t elements = 1 << 18) {
    return tensor_of(std::vector<float>(static_cast<std::size_t>(elements), value));
}
float first_of(const TensorRef& tensor) { return elements_of<float>(tensor).at(0); }

TensorMap weights(float value) {
    TensorMap map;
    for (int layer = 0; layer < 3; ++layer)
        map["layer." + std::to_string(layer)] =
            strided(filled(value + static_cast<float>(layer), 1000 * (1 + layer)), {1000, 1 + layer});
    return map;
}

bool same(const NamedTensor& named, const TensorMap& map) {
    return named.size() == map.size() && std::all_of(map.begin(), map.end(), [&](const auto& member) {
               return named.contains(member.first) && identical(named[member.first], member.second);
           });
}

}  // namespace

TEST_CASE_METHOD(Named, "A tensor is published under a name and read by it", "[client][names]") {
    const TensorRef x = transposed(strided(ramp(12), {3, 4}));
    const Published made = names.put("x", x, {std::nullopt, {{"step", "7"}, {"$odd", "yes"}}});
    CHECK(made.name == "x");
    CHECK(made.version == 1);
    CHECK(made.bytes == 48);
    const NamedTensor read = NamedTensors(server.client()).get("x");
    CHECK(identical(read.tensor(), x));
    CHECK(read.version() == 1);
    CHECK(read.metadata() == std::map<std::string, std::string>{{"step", "7"}, {"$odd", "yes"}});
    CHECK_FALSE(read.is_set());
    CHECK_THROWS_AS(read["y"], std::out_of_range);
    CHECK_THROWS_AS(names.get("y"), UnknownOrExpired);
    CHECK_THROWS_AS(names.get("x", 2), UnknownOrExpired);
}

TEST_CASE_METHOD(Named, "A set is published in one step and read whole, in part and by its members",
                 "[client][names]") {
    TensorMap map = weights(1);
    map["$odd/name"] = numbered(DType::bool_, {3});
    map["scalar"] = numbered(DType::int64, {});
    map["empty"] = zeros(DType::float32, {0, 7});
    CHECK(names.put("weights", map).version == 1);
    const NamedTensor read = names.get("weights");
    CHECK(read.is_set());
    CHECK(same(read, map));
    CHECK(identical(read.map().at("layer.1"), map.at("layer.1")));
    CHECK_THROWS_AS(read.tensor(), std::out_of_range);
    CHECK_THROWS_WITH(read["nothing"], ContainsSubstring("\"nothing\""));
    CHECK(identical(names.get("weights/layer.2").tensor(), map["layer.2"]));
    CHECK(identical(names.get("weights/$odd/name").tensor(), map["$odd/name"]));
    CHECK_THROWS_AS(names.get("weights/layer.9"), UnknownOrExpired);
    const std::vector<std::string> some{"layer.1", "scalar"};
    const NamedTensor part = names.get("weights", some);
    CHECK(part.names() == some);
    CHECK(identical(part["layer.1"], map["layer.1"]));
    CHECK_THROWS_AS(names.get("weights", {"layer.9"}), InvalidParams);
    CHECK(names.put("other", std::unordered_map<std::string, TensorRef>(map.begin(), map.end())).version == 1);
    CHECK(names.put("nothing", TensorMap{}).bytes == 0);
    CHECK(names.get("nothing").is_set());
}

TEST_CASE_METHOD(Named,
                 "A reader keeps its version when another process publishes the next, and it is freed with the reader",
                 "[client][names][memory]") {
    TemporaryFolder folder;
    names.put("weights", weights(1));
    CHECK(segments() == 1);
    const std::string next = folder.file("next.safetensors");
    names.put("next", weights(2));
    names.get("next").save(next);
    REQUIRE(names.remove("next"));
    REQUIRE(segments_become(1));

    std::optional<NamedTensor> first = names.get("weights");
    auto told = std::async(std::launch::async, [&] { return names.watch("weights", first->version(), 30s); });
    const Ended put = run_client({"--url", server.url(), "put", next, "--name", "weights"});
    INFO(put.err);
    REQUIRE(put.code == 0);
    CHECK(told.get() == 2);
    CHECK(segments() == 2);
    CHECK(same(*first, weights(1)));
    const NamedTensor second = names.get("weights");
    CHECK(second.version() == 2);
    CHECK(same(second, weights(2)));

    TensorRef row = strided((*first)["layer.2"], {3});
    first.reset();
    CHECK(server.leases() == 2);
    CHECK(first_of(row) == 3);
    row = {};
    CHECK(segments_become(1));
    CHECK(server.leases_become(1));
    CHECK(same(second, weights(2)));
}

TEST_CASE_METHOD(Named, "Later versions of large tensors take the memory of older versions",
                 "[client][names][memory]") {
    constexpr std::int64_t kFloats = 1 << 21;
    constexpr std::uint64_t kSize = kFloats * sizeof(float);
    const auto version = [](float value) {
        return TensorMap{{"a", filled(value, kFloats)}, {"b", filled(value + 1, kFloats)}};
    };
    const Published first = names.put("weights", version(1));
    CHECK(first.transport == "shm");
    CHECK(first.copied == 2 * kSize);
    std::uint64_t kept = 0;
    for (int number = 2; number <= 6; ++number) {
        const auto value = static_cast<float>(number);
        const Published next = names.put("weights", version(value), {number - 1, {{"step", "7"}}});
        CHECK(next.version == static_cast<std::uint64_t>(number));
        CHECK(next.transport == "upload");
        CHECK(next.copied == 2 * kSize);
        {
            const NamedTensor read = names.get("weights");
            CHECK(same(read, version(value)));
            CHECK(read.metadata().at("step") == "7");
        }
        REQUIRE(server.leases_become(0));
        const auto use = server.totals()["shared_memory"];
        const std::uint64_t bytes =
            use["segment_bytes"].get<std::uint64_t>() + use["idle_segment_bytes"].get<std::uint64_t>();
        if (number > 3) CHECK(bytes <= kept);  // those of the first version are gone, two others take turns
        kept = bytes;
    }
    CHECK_THROWS_AS(names.put("weights", version(7), {1, {}}), InvalidParams);
    names.put("x", filled(1, kFloats));
    CHECK(names.put("x", filled(2, kFloats)).transport == "upload");
    CHECK(identical(names.get("x").tensor(), filled(2, kFloats)));
    // These are not uploaded: files have no dtype for it, it is small, strided, or lies in shared memory.
    const TensorMap numbers{{"a", numbered(DType::complex128, {1 << 19})}};
    CHECK(names.put("weights", numbers).transport != "upload");
    CHECK(same(names.get("weights"), numbers));
    for (const TensorRef& other : {filled(1), transposed(strided(filled(1, kFloats), {2, kFloats / 2})),
                                   client.empty_in_shared_memory({kFloats}, DType::float32)}) {
        CHECK(names.put("x", other).transport != "upload");
        CHECK(identical(names.get("x").tensor(), other));
    }
}

TEST_CASE("A client that may only put publishes large versions", "[client][names][memory]") {
    TemporaryFolder folder;
    const std::string secret(32, 'p');
    const std::string tokens = folder.write("tokens", "putter:" + secret + ":allow=tensor.put\n");
    const ExampleDaemon server({"--token-file", tokens});
    ClientOptions options;
    options.url = server.url();
    options.token = secret;
    const Client client(options);
    const TensorRef x = filled(1, 1 << 21);
    CHECK(NamedTensors(client).put("x", x).version == 1);
    CHECK(NamedTensors(client).put("x", x).version == 2);
}

TEST_CASE("Later versions beyond the limits of uploads are published too", "[client][names][memory]") {
    const ExampleDaemon server({"--max-upload-bytes", "1MiB"});
    const NamedTensors names(server.client());
    const TensorRef x = filled(1, 1 << 21);
    names.put("x", x);
    CHECK(names.put("x", x).transport == "shm");
}

TEST_CASE_METHOD(Named, "Named tensors are handed over without a copy, again and again", "[client][names][memory]") {
    names.put("big", filled(3));
    names.put("set", weights(1));
    const Json before = server.totals()["shared_memory"];
    CHECK(before["segments"] == 2);
    const auto received = client.statistics().bytes_in;
    const NamedTensor one = names.get("big"), again = names.get("big"), set = names.get("set"),
                      part = names.get("set/layer.1");
    CHECK(identical(one.tensor(), again.tensor()));
    CHECK(client.statistics().bytes_in - received < 8000);
    const Json after = server.totals()["shared_memory"];
    CHECK(after["leases"] == 4);
    CHECK(after["segment_bytes"] == before["segment_bytes"]);

    const auto channel = client::SharedMemory::connect(Json::parse(client.info().json)["local_socket"], "");
    const HeaderList headers{{"Shared-Tensor-Session", channel->session()}, {"Shared-Tensor-Accept", "shm"}};
    for (int round = 0; round < 2; ++round) {
        for (const Json& params :
             {Json{{"name", "big"}}, Json{{"name", "set/layer.0"}}, Json{{"name", "set"}, {"form", "blocks"}}}) {
            const HttpReply reply = post(server.daemon.port(), call_object("tensor.get", params).dump(), headers);
            CHECK(reply.header("Shared-Tensor-Transport") == "shm;tensors=1;copied=0");
        }
    }
}

TEST_CASE_METHOD(Named, "What a reader or its publisher writes to a named tensor is seen by nobody else",
                 "[client][names][memory]") {
    const TensorRef x = filled(1);
    names.put("x", x);
    names.put("set", TensorMap{{"x", x}});
    const auto overwrite = [](const TensorRef& tensor) {
        const auto bytes = tensor::mutable_bytes(tensor);
        std::fill(bytes.begin(), bytes.end(), std::byte{0});
    };
    overwrite(x);
    overwrite(names.get("x").tensor());
    for (int round = 0; round < 3; ++round)
        names.put("other", filled(9));  // takes the memory that the first went through
    CHECK(identical(names.get("x").tensor(), filled(1)));
    CHECK(identical(names.get("set")["x"], filled(1)));
    CHECK(identical(NamedTensors(server.client()).get("x").tensor(), filled(1)));
}

TEST_CASE_METHOD(Named, "A set of 5,000 members is one lease, which ends with the last of them",
                 "[client][names][memory]") {
    TensorMap map;
    for (int i = 0; i < 5000; ++i)
        map["layer." + std::to_string(i)] = filled(static_cast<float>(i), 25);
    names.put("many", map);
    CHECK(segments() == 1);
    std::optional<NamedTensor> read = names.get("many");
    CHECK(same(*read, map));
    CHECK(server.leases() == 1);
    TensorRef last = (*read)["layer.4999"];
    read.reset();
    CHECK(server.leases() == 1);
    CHECK(first_of(last) == 4999);
    last = {};
    CHECK(server.leases_become(0));
}

TEST_CASE("Named tensors work by bytes where no memory can be shared", "[client][names]") {
    const bool here = GENERATE(true, false);
    const ExampleDaemon server(here ? Words{} : Words{"--local-socket", "none"});
    const Client client = server.far();
    const NamedTensors names(client);
    const TensorMap map = weights(1);
    names.put("set", map);
    names.put("x", filled(2));
    CHECK(same(names.get("set"), map));
    CHECK(identical(names.get("x").tensor(), filled(2)));
    CHECK(identical(names.get("set/layer.2").tensor(), map.at("layer.2")));
    const auto received = client.statistics().bytes_in;
    CHECK(identical(names.get("set", {"layer.0"})["layer.0"], map.at("layer.0")));
    CHECK(client.statistics().bytes_in - received < 6000);
    CHECK(server.leases() == 0);
    const NamedTensor held = names.get("x");
    names.remove("x");
    CHECK(identical(held.tensor(), filled(2)));
}

TEST_CASE_METHOD(Named, "A set is published by bytes when the client can make no more shared memory",
                 "[client][names][limits]") {
    TemporaryFolder folder;
    const std::string file = folder.file("set.safetensors");
    const TensorMap set{{"a", filled(1, 1 << 20)}}, in_file{{"b", filled(2, 1 << 21)}};
    const NamedTensors others(server.far());
    others.put("of another", in_file);
    others.get("of another").save(file);
    names.put("first", weights(1));  // connects, and leaves no idle segment of the size of the other sets
    {
        NoMoreDescriptors none;
        CHECK_NOTHROW(names.put("set", set));
        none.give_back_one();  // for the file
        CHECK_NOTHROW(names.put_file("file", file));
    }
    CHECK(same(names.get("set"), set));
    CHECK(same(names.get("file"), in_file));
}

TEST_CASE_METHOD(Named, "Names are replaced by one of two publishers, listed, by prefix too, and removed",
                 "[client][names]") {
    CHECK(names.put("x", filled(1), {0, {}}).version == 1);
    CHECK_THROWS_AS(names.put("x", filled(2), {0, {}}), InvalidParams);
    CHECK(names.put("x", filled(3), {1, {}}).version == 2);
    CHECK_THROWS_AS(names.put("x", filled(4), {1, {}}), InvalidParams);
    CHECK(identical(names.get("x").tensor(), filled(3)));

    names.put("run-1", filled(1, 4));
    names.put("run-2", TensorMap{{"a", filled(1, 4)}, {"b", filled(1, 4)}});
    const auto runs = names.list("run-");
    REQUIRE(runs.size() == 2);
    CHECK(runs[0].name == "run-1");
    CHECK(runs[0].dtype == "float32");
    CHECK(runs[0].shape == std::vector<std::int64_t>{4});
    CHECK(runs[0].bytes == 16);
    CHECK(runs[1].is_set);
    CHECK(runs[1].members == 2);
    CHECK_FALSE(runs[1].published_at.empty());
    CHECK(names.list().size() == 3);
    CHECK(names.remove("run-1"));
    CHECK_FALSE(names.remove("run-1"));
    CHECK(names.list().size() == 2);
}

TEST_CASE_METHOD(Named, "A client with an idempotency key publishes nothing, large or small", "[client][names]") {
    const NamedTensors keyed(client.with({.idempotency_key = "once"}));
    for (const std::int64_t elements : {1, 1 << 21}) {
        names.put("x", filled(1, elements));
        const std::uint64_t version = names.get("x").version();
        CHECK_THROWS_AS(keyed.put("x", filled(2, elements)), InvalidParams);
        CHECK(keyed.get("x").version() == version);
    }
}

TEST_CASE_METHOD(Named, "A watch waits for the first version, the next one, or the end", "[client][names]") {
    CHECK_FALSE(names.watch("x", 0, 10ms));
    auto first = std::async(std::launch::async, [&] { return names.watch("x", 0, 30s); });
    names.put("x", filled(1, 4));
    CHECK(first.get() == 1);
    CHECK(names.watch("x", 7, 30s) == 1);
    CHECK_FALSE(names.watch("x", 1, 10ms));
    auto end = std::async(std::launch::async, [&] { return names.watch("x", 1, 30s); });
    std::this_thread::sleep_for(20ms);  // most likely it waits by now; it ends alike if it does not
    names.remove("x");
    CHECK_THROWS_AS(end.get(), UnknownOrExpired);
    CHECK_THROWS_AS(names.watch("x", 1, 30s), UnknownOrExpired);
    CHECK_THROWS_AS(names.watch("a/b", 0, 30s), InvalidParams);
}

TEST_CASE("Metadata counts against the limit of named tensors", "[client][names][limits]") {
    const ExampleDaemon server({"--max-named-bytes", "1M"});
    const NamedTensors names(server.client());
    PutOptions options;
    options.metadata["text"] = std::string(250'000, 'a');
    for (int i = 0; i < 4; ++i)
        names.put(std::to_string(i), filled(1, 1), options);
    CHECK_THROWS_WITH(names.put("fifth", filled(1, 1), options), ContainsSubstring("max-named-bytes"));
}
