// Copies of another server's named tensors in a server of this process.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include <shared_tensor/node.hpp>

#include "integration/client/transfers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kSecret = "0123456789abcdef0123456789abcdef";

ServerOptions at_any_port() {
    ServerOptions options;
    options.port = 0;
    return options;
}

std::map<std::string, TensorRef> weights(int version) {
    return {{"a", numbers(3'000'000, version)}, {"b", numbers(1'000'001, -version)}, {"c", numbers(3, version)}};
}

Json memory_of(const Server& server) { return call(server.port(), "server.info")["totals"]["shared_memory"]; }

}  // namespace

TEST_CASE("a server gets a version of another one without a copy, in memory of older versions", "[node][pull]") {
    const ExampleDaemon there;
    const NamedTensors far(there.far());
    Server here({}, at_any_port());
    here.start();
    const NamedTensors near(Client(here.url()));
    std::optional<NamedTensor> read, before;
    for (int version = 1; version <= 6; ++version) {
        far.put("weights", weights(version),
                {.metadata = {{"step", std::to_string(version)}}, .version = 10 * version});
        PullOptions pull;
        if (version % 2 == 0) pull.swarm.emplace().trusted = true;
        NamedTensorCopy copy(here, "", far, "weights", pull);
        CHECK(copy.version() == 10U * static_cast<unsigned>(version));
        const Published published = copy.publish();
        CHECK(published.version == copy.version());
        CHECK(published.copied == 0);
        CHECK_THROWS_AS(copy.publish(), std::logic_error);
        before = std::exchange(read, near.get("weights"));
        CHECK(read->metadata().at("step") == std::to_string(version));
        for (const auto& [name, tensor] : weights(version))
            CHECK(identical((*read)[name], tensor));
        if (before) CHECK(identical((*before)["b"], numbers(1'000'001, 1 - version)));
        before.reset();
        // The version that is read, and the one before, whose memory the next one takes.
        CHECK(eventually([&] {
            const Json memory = memory_of(here);
            return memory["segments"] == 1 && memory["idle_segments"] == (version > 1 ? 1 : 0);
        }));
    }
}

TEST_CASE("single tensors, small ones and all dtypes are copied into a server", "[node][pull]") {
    const ExampleDaemon there;
    const NamedTensors far(there.far());
    Server here({}, at_any_port());
    here.start();
    const NamedTensors near(Client(here.url()));
    std::map<std::string, TensorRef> all{{"one", numbers(3'000'000)},
                                         {"small", numbers(10)},
                                         {"complex", numbered(DType::complex128, {200'000})},
                                         {"none", numbered(DType::float32, {0, 3})}};
    for (const auto& [name, tensor] : all) {
        far.push(name, tensor);
        const Published published = NamedTensorCopy(here, "", far, name).publish();
        CHECK(published.bytes == tensor.bytes());
        CHECK(published.copied == (name == "small" ? tensor.bytes() : 0));
        CHECK(identical(near.get(name).tensor(), tensor));
    }
    const std::map<std::string, TensorRef> few{{"x", numbers(2)}, {"y", numbers(4)}};
    far.put("few", few);
    NamedTensorCopy(here, "", far, "few").publish();
    CHECK(identical(near.get("few")["y"], few.at("y")));
}

TEST_CASE("copies count with their metadata against the limit of names, before they are pulled", "[node][pull]") {
    const ExampleDaemon there;
    const NamedTensors far(there.far());
    ServerOptions options = at_any_port();
    options.names.max_bytes = 26 << 20;
    Server here({}, options);
    here.start();
    const std::string text(200'000, 'x');
    for (const char* const name : {"x", "set"}) {
        const auto bytes_of_names = [&] {
            return call(here.port(), "server.info")["totals"]["named_tensors"]["bytes"].get<std::uint64_t>();
        };
        const std::uint64_t before = bytes_of_names();
        const TensorRef x = numbers(3'000'000);
        name == std::string("x")
            ? far.put(name, x, {.metadata = {{"text", text}}})
            : far.put(name, std::map<std::string, TensorRef>{{"a", x}}, {.metadata = {{"text", text}}});
        NamedTensorCopy(here, "", far, name).publish();
        CHECK(bytes_of_names() > before + x.bytes() + text.size());
    }
    far.put("y", numbers(2'000'000));
    CHECK_THROWS_AS(NamedTensorCopy(here, "", far, "y"), ServerOutOfMemory);
}

TEST_CASE("what cannot be copied into a server is said", "[node][pull]") {
    const ExampleDaemon there;
    const NamedTensors far(there.far());
    far.put("x", numbers(3'000'000), {.version = 7});
    ServerOptions options = at_any_port();
    options.tokens = {{"reader", kSecret, false}};
    options.shared_memory.max_bytes = 32 << 20;
    Server here({}, options);
    here.start();
    CHECK_THROWS_AS(NamedTensorCopy(here, "another token of sixteen and more", far, "x"), NotAuthorised);
    CHECK_THROWS_AS(NamedTensorCopy(here, kSecret, far, "y"), UnknownOrExpired);
    CHECK_THROWS_AS(NamedTensorCopy(here, kSecret, far, "x", {.first_row = 1}), std::invalid_argument);
    far.put("set", weights(1));
    CHECK_THROWS_AS(NamedTensorCopy(here, kSecret, far, "set/a"), InvalidParams);
    CHECK_THROWS_AS(NamedTensorCopy(here, kSecret, far, "x", {.version = 6}), UnknownOrExpired);
    CHECK(NamedTensorCopy(here, kSecret, far, "x").publish().version == 7);
    NamedTensorCopy again(here, kSecret, far, "x");
    CHECK_THROWS_AS(again.publish(), InvalidParams);
    ClientOptions reader;
    reader.url = here.url();
    reader.token = kSecret;
    CHECK(NamedTensors(Client(reader)).get("x").version() == 7);

    far.put("x", numbers(8'000'000));
    CHECK_THROWS_WITH(NamedTensorCopy(here, kSecret, far, "x"),
                      ContainsSubstring("the server of this process") && ContainsSubstring("--max-shared-bytes"));
    CHECK_THROWS_AS(NamedTensorCopy(here, kSecret, far, "x"), ServerOutOfMemory);
    far.put("x", numbers(2'000'000));
    NamedTensorCopy late(here, kSecret, far, "x");
    here.stop(std::chrono::milliseconds(0));
    CHECK_THROWS_AS(late.publish(), ShuttingDown);
    CHECK_THROWS_AS(NamedTensorCopy(here, kSecret, far, "x"), ShuttingDown);
}
