// Readers that want other parts of tensors than their publishers hold.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <deque>
#include <future>
#include <numeric>

#include <shared_tensor/sharding.hpp>

#include "integration/client/transfers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

constexpr std::int64_t kRows = 103, kColumns = 67;

std::int32_t element(std::int64_t row, std::int64_t column, int step) {
    return static_cast<std::int32_t>(row * 1000 + column + step * 1'000'000);
}

/// The part of a tensor in which each element tells its place and the step.
TensorRef make_part(const TensorPart& part, int step) {
    std::vector<std::int32_t> elements;
    for (std::int64_t row = 0; row < part.size[0]; ++row)
        for (std::int64_t column = 0; column < part.size[1]; ++column)
            elements.push_back(element(part.first[0] + row, part.first[1] + column, step));
    return tensor_of(elements, part.size);
}

/// Publishers of a mesh, each with a server of its own.
struct Publishers {
    explicit Publishers(std::vector<std::int64_t> the_mesh, bool far) : mesh(std::move(the_mesh)) {
        const auto count = std::accumulate(mesh.begin(), mesh.end(), std::int64_t{1}, std::multiplies<>());
        for (std::int64_t i = 0; i < count; ++i) {
            servers.emplace_back();
            shards.push_back({NamedTensors(far ? servers.back().far() : servers.back().client()), "weights"});
        }
    }
    MeshPlace place(std::size_t i) const {
        MeshPlace found{mesh, mesh};
        for (std::size_t d = mesh.size(); d-- > 0; i /= static_cast<std::size_t>(mesh[d]))
            found.at[d] = static_cast<std::int64_t>(i) % mesh[d];
        return found;
    }
    void publish(const std::vector<Placement1D>& placements, int step, std::size_t first = 0) {
        for (std::size_t i = first; i < shards.size(); ++i) {
            const TensorPart part = part_of({kRows, kColumns}, placements, place(i));
            const std::map<std::string, ShardedTensor> tensors{
                {"w", {make_part(part, step), {kRows, kColumns}, placements}},
                {"bias", {tensor_of(std::vector<float>{1, 2, 3}), {3}, std::vector<Placement1D>(mesh.size())}}};
            put_sharded(shards[i].names, shards[i].name, tensors, place(i), std::to_string(step));
        }
    }

    std::vector<std::int64_t> mesh;
    std::deque<ExampleDaemon> servers;
    std::vector<NamedShards> shards;
};

void check(const ShardedTensors& read, const std::vector<Placement1D>& placements, const MeshPlace& place, int step) {
    const TensorPart part = part_of({kRows, kColumns}, placements, place);
    CHECK(read.generation == std::to_string(step));
    CHECK(identical(read.tensors.at("w"), make_part(part, step)));
}

}  // namespace

TEST_CASE("each reader gets its own part, however the publishers' parts lie", "[sharding]") {
    const bool far = GENERATE(false, true);
    Publishers publishers({2, 2}, far);
    const std::vector<Placement1D> held =
        GENERATE(std::vector{shard(0), shard(1)}, std::vector{shard(1), shard(1)}, std::vector{replicate(), shard(0)});
    publishers.publish(held, 1);
    std::uint64_t fetched = 0;
    for (std::int64_t reader = 0; reader < 3; ++reader) {
        const MeshPlace place{{3}, {reader}};
        const std::vector<Placement1D> wanted{shard(1)};
        const ShardedTensors read = get_sharded(publishers.shards, {{"w", wanted}, {"bias", {replicate()}}}, place);
        check(read, wanted, place, 1);
        CHECK(identical(read.tensors.at("bias"), tensor_of(std::vector<float>{1, 2, 3})));
        fetched += read.fetched_bytes;
    }
    CHECK(fetched == (far ? std::uint64_t{kRows * kColumns * 4 + 3 * 12} : 0));
}

TEST_CASE("parts are of one generation", "[sharding]") {
    Publishers publishers({2}, true);
    const std::vector<Placement1D> rows{shard(0)};
    publishers.publish(rows, 1);
    publishers.publish(rows, 2, 1);  // the first is late
    const MeshPlace place{{1}, {0}};
    const auto read = [&](ShardedRead options) {
        return get_sharded(publishers.shards, {{"w", rows}}, place, options);
    };
    CHECK_THROWS_AS(read({.patience = std::chrono::milliseconds(100)}), UnknownOrExpired);
    auto waiting = std::async(std::launch::async, [&] { return read({}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    publishers.publish(rows, 2);
    check(waiting.get(), rows, place, 2);
    CHECK_THROWS_AS(read({.generation = "1", .patience = std::chrono::milliseconds(0)}), UnknownOrExpired);

    std::atomic<bool> stopped{false};
    auto publishing = std::async(std::launch::async, [&] {
        for (int step = 3; !stopped; ++step)
            publishers.publish(rows, step);
    });
    for (int i = 0; i < 20; ++i) {
        const ShardedTensors one = read({});
        check(one, rows, place, std::stoi(one.generation));
    }
    stopped = true;
    publishing.get();
}

TEST_CASE("what the publishers do not have is an error that names it", "[sharding]") {
    Publishers publishers({2}, GENERATE(false, true));
    publishers.publish({shard(0)}, 1);
    const MeshPlace place{{1}, {0}};
    const auto why = [&](const std::vector<NamedShards>& from, const std::string& name) -> std::string {
        try {
            get_sharded(from, {{name, {replicate()}}}, place);
        } catch (const std::invalid_argument& error) {
            return error.what();
        }
        return {};
    };
    CHECK(why(publishers.shards, "v").find("\"v\"") != std::string::npos);
    CHECK(why({publishers.shards[1]}, "w").find("name all") != std::string::npos);
    CHECK(why({}, "w").find("at least one") != std::string::npos);
    publishers.shards[0].names.put("plain", tensor_of(std::vector<float>{1}));
    CHECK(why({{publishers.shards[0].names, "plain"}}, "w").find("put_sharded") != std::string::npos);
    const std::map<std::string, ShardedTensor> odd{{"w", {tensor_of(std::vector<float>{1}), {9}, {shard(0)}}}};
    CHECK_THROWS_AS(put_sharded(publishers.shards[0].names, "odd", odd, {{2}, {0}}, "1"), std::invalid_argument);
}

TEST_CASE("publishers of different meshes overlap, and what none has is missed", "[sharding]") {
    const bool far = GENERATE(false, true);
    Publishers halves({2}, far), thirds({3}, far);
    const std::vector<Placement1D> rows{shard(0)};
    halves.publish(rows, 1);
    thirds.publish(rows, 1);
    const MeshPlace place{{1}, {0}};
    std::vector<NamedShards> some{halves.shards[0], thirds.shards[0], thirds.shards[1]};
    CHECK_THROWS_AS(get_sharded(some, {{"w", rows}}, place), std::invalid_argument);
    some.push_back(thirds.shards[2]);
    check(get_sharded(some, {{"w", rows}}, place), rows, place, 1);
}

TEST_CASE("a publisher whose tensor is not what its metadata says is rejected", "[sharding]") {
    Publishers publishers({1}, GENERATE(false, true));
    const std::vector<Placement1D> rows{shard(0)};
    publishers.publish(rows, 1);
    const NamedTensors& names = publishers.shards[0].names;
    PutOptions options;
    options.base = names.get("weights").version();
    const TensorRef other = GENERATE(arange<std::int32_t>({3}), arange<double>({kRows, kColumns}));
    names.put("weights", TensorMap{{"w", other}}, options);
    CHECK_THROWS_AS(get_sharded(publishers.shards, {{"w", rows}}, {{1}, {0}}), ProtocolFailure);
}

TEST_CASE("a layout that is not of whole numbers is rejected", "[sharding]") {
    ExampleDaemon server;
    const NamedTensors names(server.client());
    const auto read = [&](const std::string& mesh, const std::string& shape, const std::string& placement) {
        PutOptions options;
        options.metadata["sharding"] = R"({"mesh":[)" + mesh +
                                       R"(],"at":[0],"generation":"1","tensors":{"w":["float32",[)" + shape + "],[" +
                                       placement + "]]}}";
        names.put("weights", TensorMap{{"w", tensor_of(std::vector<float>{1, 2, 3})}}, options);
        return get_sharded({{names, "weights"}}, {{"w", {replicate()}}}, {{1}, {0}}).tensors.at("w").elements();
    };
    CHECK(read("1", "3", "0") == 3);
    CHECK_THROWS_AS(read("1.0", "3", "0"), std::invalid_argument);
    CHECK_THROWS_AS(read("1", "3.5", "0"), std::invalid_argument);
    CHECK_THROWS_AS(read("1", "3", "0.5"), std::invalid_argument);
    CHECK_THROWS_AS(read("1", "-3", "null"), std::invalid_argument);
    CHECK_THROWS_AS(read("1", "9223372036854775807", "0"), std::invalid_argument);
}
