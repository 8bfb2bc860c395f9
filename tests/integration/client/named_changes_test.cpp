// Versions of a set in which only some members changed.

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "integration/client/transfers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

std::string nth(int number) { return "m" + std::to_string(number); }

/// Pseudorandom numbers, as weights are, of which every hundredth has another last bit in each version.
std::map<std::string, TensorRef> steps(int version) {
    std::map<std::string, TensorRef> members;
    for (int member = 0; member < 2; ++member) {
        std::mt19937 random(static_cast<unsigned>(member));  // NOLINT(cert-msc*): the same in every run
        std::vector<std::int32_t> elements(1 << 21);
        for (std::size_t i = 0; i < elements.size(); ++i)
            elements[i] = static_cast<std::int32_t>(random()) ^ (i % 100 == 17 ? version : 0);
        members[nth(member)] = tensor_of(elements);
    }
    return members;
}
constexpr std::uint64_t kStepBytes = std::uint64_t{16} << 20;

constexpr std::int64_t kMemberFloats = 1 << 16;
constexpr std::uint64_t kMemberBytes = kMemberFloats * sizeof(float);
constexpr int kMembers = 100;

TensorRef constant(float value, std::int64_t floats = kMemberFloats) {
    return tensor_of(std::vector<float>(static_cast<std::size_t>(floats), value));
}

struct Changes : Example {
    Changes() {
        for (int i = 0; i < kMembers; ++i)
            now[nth(i)] = constant(static_cast<float>(i));
        REQUIRE(names.put("weights", now, {{}, {{"step", "1"}, {"kept", "yes"}}}).version == 1);
    }

    /// Publishes other values of some members as the next version.
    Published change(const std::vector<int>& members, float value) {
        std::map<std::string, TensorRef> changed;
        for (const int member : members)
            changed[nth(member)] = now[nth(member)] = constant(value);
        return names.put("weights", changed, {.base = version++});
    }
    bool is_now(const NamedTensor& read) const {
        return read.size() == now.size() && std::all_of(now.begin(), now.end(), [&](const auto& member) {
                   return read.contains(member.first) && identical(read[member.first], member.second);
               });
    }
    std::uint64_t shared_bytes() const { return server.totals()["shared_memory"]["segment_bytes"]; }

    const NamedTensors names{client};
    std::map<std::string, TensorRef> now;
    std::uint64_t version = 1;
};

}  // namespace

TEST_CASE_METHOD(Changes, "A version with one changed member of a hundred costs a hundredth of the memory",
                 "[client][names][memory]") {
    const std::uint64_t before = shared_bytes();
    CHECK(before >= kMembers * kMemberBytes);
    const NamedTensor first = names.get("weights");
    const Published made = change({7}, -1);
    CHECK(made.version == 2);
    CHECK(made.copied <= 2 * kMemberBytes);
    CHECK(made.bytes <= (kMembers + 1) * kMemberBytes);
    CHECK(shared_bytes() - before <= kMemberBytes + 4096);
    const NamedTensor second = names.get("weights");
    CHECK(is_now(second));
    CHECK(second.metadata() == std::map<std::string, std::string>{{"step", "1"}, {"kept", "yes"}});
    CHECK(identical(first[nth(7)], constant(7)));
    CHECK(identical(names.get("weights/" + nth(7)).tensor(), constant(-1)));
    CHECK(identical(names.get("weights/" + nth(8)).tensor(), constant(8)));
    const NamedTensor part = names.get("weights", {nth(7), nth(8)});
    CHECK(part.size() == 2);
    CHECK(identical(part[nth(7)], constant(-1)));
    CHECK(identical(part[nth(8)], constant(8)));

    // The same member again: what it replaces is given back.
    change({7}, -2);
    CHECK(shared_bytes() - before <= 2 * kMemberBytes + 4096);  // a reader has the second version
    CHECK(is_now(names.get("weights")));
}

TEST_CASE_METHOD(Changes, "A version holds at most twice its bytes, whatever changed", "[client][names][memory]") {
    std::uint64_t copied = 0;
    for (int round = 0; round < 40; ++round) {
        copied += change({round, round + 40, round + 41}, static_cast<float>(-1 - round)).copied;
        CHECK(names.list("weights").front().bytes <= 2 * kMembers * kMemberBytes);
    }
    CHECK(copied <= 6 * 120 * kMemberBytes);  // members are moved now and then, not each time
    CHECK(server.totals()["shared_memory"]["segments"] <= 17);
    for (const int end : {99, 50}) {  // one member is left of the first block, then half of the next
        std::vector<int> many(static_cast<std::size_t>(end));
        std::iota(many.begin(), many.end(), 0);
        change(many, static_cast<float>(-end));
        CHECK(names.list("weights").front().bytes <= 2 * kMembers * kMemberBytes);
    }
    CHECK(is_now(names.get("weights")));
    CHECK(shared_bytes() <= 2 * kMembers * kMemberBytes);
}

TEST_CASE_METHOD(Changes, "A reader keeps the mapping of what did not change, unless it wrote there",
                 "[client][names][memory]") {
    const NamedTensor first = names.get("weights");
    change({3}, -1);
    const NamedTensor second = names.get("weights", first);
    CHECK(is_now(second));
    CHECK(second[nth(4)].data() == first[nth(4)].data());
    CHECK(second[nth(3)].data() != first[nth(3)].data());
    CHECK(server.leases() == 2);  // the block of the first version, and the changed member
    CHECK(identical(first[nth(3)], constant(3)));

    const auto bytes = tensor::mutable_bytes(first[nth(4)]);
    std::fill(bytes.begin(), bytes.end(), std::byte{1});
    change({5}, -2);
    const NamedTensor third = names.get("weights", second);
    CHECK(is_now(third));
    CHECK(third[nth(4)].data() != first[nth(4)].data());
    CHECK(third[nth(3)].data() == second[nth(3)].data());
    CHECK(is_now(NamedTensors(server.client()).get("weights", third)));  // another session
}

TEST_CASE_METHOD(Changes, "Changed members are pushed from another host, and read there", "[client][names]") {
    const NamedTensors far(server.far());
    const NamedTensor before = far.get("weights");
    std::map<std::string, TensorRef> changed{{nth(1), constant(-1)}, {"new", constant(5, 3)}};
    const bool by_file = GENERATE(true, false);
    if (by_file) {
        TemporaryFolder folder;
        names.put("changed", changed, {{}, {{"step", "2"}}});
        names.get("changed").save(folder.file("changed.safetensors"));
        CHECK(far.push_file("weights", folder.file("changed.safetensors"), {.put = {.base = 1}}).version == 2);
    } else {
        CHECK(far.push("weights", changed, {.put = {{}, {{"step", "2"}}, 1}}).version == 2);
    }
    for (auto& [name, tensor] : changed)
        now[name] = tensor;
    for (const NamedTensor& read : {far.pull("weights"), far.get("weights", before), names.get("weights")}) {
        CHECK(is_now(read));
        CHECK(read.metadata() == std::map<std::string, std::string>{{"step", "2"}, {"kept", "yes"}});
    }
    CHECK_THROWS_AS(far.push("weights", changed, {.put = {.base = 1}}), InvalidParams);
    CHECK_THROWS_AS(far.push("weights", changed, {.put = {.if_version = 2, .base = 2}}), InvalidParams);
    CHECK_THROWS_AS(far.push("weights", constant(1), {.put = {.base = 2}}), InvalidParams);
    CHECK_THROWS_AS(names.put("weights", changed, {.base = 1}), InvalidParams);
    CHECK(is_now(names.get("weights", 2)));
    // One changed member that has the name of the set is still a member.
    CHECK(
        far.push("weights", std::map<std::string, TensorRef>{{"weights", constant(2)}}, {.put = {.base = 2}}).version ==
        3);
    CHECK(far.pull("weights").size() == now.size() + 1);
}

TEST_CASE_METHOD(Changes, "From another host only blocks are fetched that differ from an earlier version",
                 "[client][names][pull]") {
    const Client reader = server.far();
    const NamedTensors far(reader);
    const auto fetched = [&](const NamedTensor& previous, const PullOptions& options = {}) {
        PullOptions all = options;
        all.previous = previous;
        const std::uint64_t before = reader.statistics().bytes_in;
        CHECK(is_now(far.pull("weights", all)));
        return reader.statistics().bytes_in - before;
    };
    constexpr std::uint64_t kFirst = 1'200'000;  // the first request, which brings the header
    const NamedTensor first = far.pull("weights");
    CHECK(fetched(first) < kFirst + 10'000);

    std::vector<float> some = elements_of<float>(now[nth(70)]);
    some[40'000] = -1;
    now[nth(70)] = tensor_of(some);
    some.resize(some.size() + 1000, 5);
    now[nth(71)] = tensor_of(some);
    now["new"] = constant(3, 10);
    now["odd"] = numbered(DType::bool_, {5});
    now.erase(nth(99));
    names.put("weights", now);
    CHECK(fetched(first) < kFirst + 64 * 1024 + kMemberBytes + 20'000);
    CHECK(fetched(first, {.connections = 1, .range_bytes = 10'000}) < 64 * 1024 + kMemberBytes + 80'000);

    // What this process wrote to its version is not taken for the new one.
    const auto bytes = tensor::mutable_bytes(first[nth(80)]);
    bytes[100'000] = std::byte{1};
    CHECK(fetched(first) < kFirst + 2 * 64 * 1024 + kMemberBytes + 20'000);

    // Also from a file, from a version that has none of it, and of a set that changed by its blocks only.
    TemporaryFolder folder;
    names.get("weights").save(folder.file("weights.safetensors"));
    const NamedTensor loaded = NamedTensor::load(folder.file("weights.safetensors"));
    CHECK(loaded.name() == "weights");
    CHECK(is_now(loaded));
    CHECK(fetched(loaded) < kFirst + 20'000);
    names.put("other", std::map<std::string, TensorRef>{{nth(0), constant(5, 3)}});
    CHECK(fetched(far.pull("other")) > 90 * kMemberBytes);
    version = 2;
    change({5}, 17);
    CHECK(fetched(loaded) < kFirst + kMemberBytes + 20'000);

    // One tensor, with rows, and of a dtype that has to come as it is.
    const NamedTensor row = far.pull("weights/" + nth(71), {.previous = loaded});
    CHECK(identical(row.tensor(), now[nth(71)]));
    const NamedTensor rows = far.pull("weights/" + nth(71), {.first_row = 10, .last_row = 20, .previous = row});
    CHECK(rows.tensor().shape()[0] == 10);
    const TensorRef complex = numbered(DType::complex128, {300'000});
    names.put("complex", complex);
    CHECK(identical(far.pull("complex", {.previous = loaded}).tensor(), complex));
    names.put("complex", complex);
    CHECK(identical(far.pull("complex", {.previous = far.pull("complex")}).tensor(), complex));
}

TEST_CASE("What is fetched beside an earlier version is of one version, whatever breaks and whoever publishes",
          "[client][names][pull]") {
    const auto version_of = [](int number) {  // half of the blocks change
        std::vector<std::int32_t> elements(500'000, 1);
        std::fill(elements.begin(), elements.begin() + 250'000, number);
        return std::map<std::string, TensorRef>{{"a", tensor_of(elements)}, {"b", numbers(300'000, number)}};
    };
    std::atomic<bool> breaks{false};
    const Behind behind([&](int connection) {
        if (!breaks) return Harm();
        const auto place = static_cast<std::uint64_t>(connection % 11);
        return connection % 3 == 0 ? Harm{.damage_down = 100'000 + place * 997}
                                   : Harm{.cut_down = 70'000 + place * 9973};
    });
    behind.near.put("weights", version_of(1));
    const NamedTensors far(behind.client(patient()));
    NamedTensor last = far.pull("weights");
    const auto is_of_one_version = [&](const NamedTensor& read) {
        const auto wanted = version_of(elements_of<std::int32_t>(read["b"])[0]);
        return identical(read["a"], wanted.at("a")) && identical(read["b"], wanted.at("b"));
    };
    breaks = true;
    behind.near.put("weights", version_of(2));
    last = far.pull("weights", {.connections = 2, .range_bytes = 100'000, .previous = last});
    CHECK(is_of_one_version(last));
    CHECK(last.version() == 2);
    breaks = false;
    std::jthread publisher([&](const std::stop_token& stop) {
        for (int number = 3; !stop.stop_requested(); ++number)
            behind.near.put("weights", version_of(number));
    });
    for (int i = 0; i < 20; ++i) {
        last = far.pull("weights", {.connections = 2, .range_bytes = 100'000, .previous = last});
        CHECK(is_of_one_version(last));
    }
    publisher.request_stop();
    publisher.join();

    // The content of the earlier version comes back between the first request and the next: it completes no other.
    behind.near.put("weights", version_of(1));
    const NamedTensor one = far.pull("weights");
    behind.near.put("weights", version_of(2));
    bool is_back = false;
    const auto come_back = [&](std::uint64_t, std::uint64_t) {
        if (!std::exchange(is_back, true)) behind.near.put("weights", version_of(1));
    };
    CHECK(is_of_one_version(far.pull("weights", {.progress = come_back, .previous = one})));
    CHECK(is_back);
}

TEST_CASE("Elements that changed all over a set are fetched as differences, if the server keeps the earlier version",
          "[client][names][pull]") {
    const ExampleDaemon server({"--older-versions", "2"});
    const NamedTensors near(server.client());
    const Client reader = server.far();
    const NamedTensors far(reader);
    const auto fetched = [&](const NamedTensor& previous, int version, const PullOptions& options = {}) {
        PullOptions all = options;
        all.previous = previous;
        const std::uint64_t before = reader.statistics().bytes_in;
        const NamedTensor read = far.pull("weights", all);
        const auto wanted = steps(version);
        CHECK(std::all_of(wanted.begin(), wanted.end(),
                          [&](const auto& member) { return identical(read[member.first], member.second); }));
        return reader.statistics().bytes_in - before;
    };
    constexpr std::uint64_t kFirst = 1'200'000;  // the first request, which brings the header
    near.put("weights", steps(1));
    const NamedTensor first = far.pull("weights");
    near.put("weights", steps(2), {{}, {{"a longer", "header"}}});
    CHECK(fetched(first, 2) < kFirst + kStepBytes * 4 / 100);
    CHECK(fetched(first, 2, {.connections = 1, .range_bytes = 99'999}) < 100'000 + kStepBytes * 5 / 100);
    CHECK(fetched(first, 2, {.range_bytes = 5 << 20}) > kStepBytes * 3 / 4);  // too long for differences
    near.put("weights", steps(3));
    CHECK(fetched(first, 3) < kFirst + kStepBytes * 4 / 100);
    const auto row = far.pull("weights/m1", {.first_row = 1000, .last_row = 900'000, .previous = first});
    CHECK(identical(row.tensor(), steps(3)["m1"].slice(1000, 900'000)));

    // What this process wrote is no version that the server has, and a version that is not kept is of no use.
    const NamedTensor written = far.pull("weights");
    tensor::mutable_bytes(written["m1"])[3] ^= std::byte{1};
    near.put("weights", steps(4));
    CHECK(fetched(written, 4) > kStepBytes * 9 / 10);
    CHECK(fetched(first, 4) > kStepBytes * 9 / 10);
    CHECK(server.totals()["named_tensors"]["bytes"] >= 3 * kStepBytes);

    // Nor is what it writes while the differences come.
    const NamedTensor changing = far.pull("weights");
    near.put("weights", steps(7));
    int calls = 0;
    const auto write = [&](std::uint64_t, std::uint64_t) {
        if (++calls == 2) tensor::mutable_bytes(changing["m1"])[5'000'000] ^= std::byte{1};  // after it was compared
    };
    CHECK(fetched(changing, 7, {.connections = 1, .progress = write}) > kStepBytes / 10);

    // Members that came, went or changed their size since.
    auto other = steps(5);
    other["new"] = constant(1, 10);
    near.put("weights", other);
    CHECK(fetched(far.pull("weights"), 5) < kFirst + 20'000);
    near.put("weights", steps(6));
    CHECK(fetched(far.pull("weights"), 6) < kFirst + 20'000);
    REQUIRE(near.remove("weights"));
    CHECK(server.totals()["named_tensors"]["bytes"] == 0);
}

TEST_CASE("Older versions are kept as far as there is room", "[client][names][limits]") {
    const ExampleDaemon server({"--older-versions", "3", "--max-named-bytes", "40MiB"});
    const NamedTensors near(server.client());
    for (int version = 1; version <= 5; ++version)
        near.put("weights", steps(version));
    const std::uint64_t two = 2 * kStepBytes;
    CHECK(server.totals()["named_tensors"]["bytes"] >= two);
    CHECK(server.totals()["named_tensors"]["bytes"] < two + 100'000);
    near.put("more", constant(1, 4 << 20));  // older versions make room for other names too
    CHECK(server.totals()["named_tensors"]["bytes"] >= two);
    CHECK(server.totals()["named_tensors"]["bytes"] < two + 100'000);
    CHECK(near.list().size() == 2);
}

TEST_CASE("Differences that are cut or damaged on the way are fetched again", "[client][names][pull]") {
    std::atomic<bool> breaks{false};
    const Behind behind(
        [&](int connection) {
            if (!breaks) return Harm();
            const auto place = 50'000 + static_cast<std::uint64_t>(connection % 11) * 9973;
            return connection % 2 == 0 ? Harm{.damage_down = place} : Harm{.cut_down = place};
        },
        {"--older-versions", "1"});
    behind.near.put("weights", steps(1));
    const NamedTensors far(behind.client(patient()));
    const NamedTensor first = far.pull("weights");
    behind.near.put("weights", steps(2));
    breaks = true;
    const NamedTensor second = far.pull("weights", {.connections = 2, .range_bytes = 1 << 20, .previous = first});
    for (const auto& [name, tensor] : steps(2))
        CHECK(identical(second[name], tensor));
}
