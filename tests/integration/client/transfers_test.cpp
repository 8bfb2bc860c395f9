// Named tensors over the network: pulled in parallel ranges, pushed in parallel parts, whatever breaks.

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <future>
#include <memory>
#include <thread>

#include "integration/client/transfers.hpp"
#include "support/process.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kCount = 1'000'000, kBytes = 4 * kCount;
const Json kNoUploads{{"open", 0}, {"bytes", 0}};

ClientOptions hasty() {
    ClientOptions options;
    options.retry = no_retry();
    return options;
}

/// Cuts each connection, each at another place: at the start, in the middle and at the end of heads and ranges.
std::uint64_t about(std::uint64_t bytes, int connection) {
    return bytes + static_cast<std::uint64_t>(connection % 7) * 997;
}

/// The offsets near the edges of the parts and of the heads of a transfer, and inside: `whole` bytes with heads that
/// differ by a few digits.
std::vector<std::uint64_t> edges(std::uint64_t whole, std::uint64_t part, std::uint64_t parts) {
    const std::uint64_t each = whole / parts;
    std::vector<std::uint64_t> places{0, 1, whole - 1};
    for (std::uint64_t i = 0; i < parts; ++i) {
        for (const std::uint64_t edge : {i * each, i * each + each - part, i * each + each / 2}) {
            for (std::uint64_t near = 0; near <= 24; ++near)
                places.push_back(edge + near - std::min<std::uint64_t>(edge, 12));
        }
    }
    std::erase_if(places, [whole](std::uint64_t place) { return place >= whole; });
    return places;
}

}  // namespace

TEST_CASE("tensors and sets are pushed and pulled as they are", "[client][push][pull]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client()), far(server.far());
    const TensorRef x = strided(numbers(3'000'000), {1000, 3000});
    std::uint64_t version = 0;
    for (const PushOptions& options : {PushOptions{}, PushOptions{.connections = 1}, PushOptions{.part_bytes = 100'003},
                                       PushOptions{.connections = 8, .part_bytes = 64 << 20, .verify = false}}) {
        const Published published = far.push("x", x, options);
        CHECK(published.version > version);
        CHECK(published.bytes == x.bytes());
        version = published.version;
        const NamedTensor got = near.get("x");
        CHECK(got.version() == version);
        CHECK(identical(got.tensor(), x));
    }
    far.push("x", transposed(x));
    CHECK(identical(near.get("x").tensor(), transposed(x)));
    version = far.push("x", x, {.put = {.metadata = {{"step", "7"}}}}).version;
    CHECK(near.get("x").metadata().at("step") == "7");
    for (const PullOptions& options :
         {PullOptions{}, PullOptions{.connections = 1}, PullOptions{.range_bytes = 100'000},
          PullOptions{.connections = 8, .range_bytes = 1'000'003, .verify = false}}) {
        const NamedTensor pulled = far.pull("x", options);
        CHECK(identical(pulled.tensor(), x));
        CHECK(pulled.version() == version);
        CHECK(pulled.metadata().at("step") == "7");
        CHECK_FALSE(pulled.is_set());
    }
    const auto rows = [](std::int64_t first, std::int64_t last) {
        return strided(numbers((last - first) * 3000, static_cast<int>(first) * 3000), {last - first, 3000});
    };
    CHECK(identical(far.pull("x", {.first_row = 10, .last_row = 20}).tensor(), rows(10, 20)));
    CHECK(identical(far.pull("x", {.first_row = 990}).tensor(), rows(990, 1000)));
    CHECK(far.pull("x", {.last_row = 0}).tensor().elements() == 0);

    const std::map<std::string, TensorRef> set{{"b.weight", numbers(700'000)}, {"a bias", numbered(DType::bool_, {3})}};
    far.push("weights", set, {.put = {.metadata = {{"step", "8"}}}});
    TemporaryFolder folder;
    near.get("weights").save(folder.file("weights.safetensors"));
    far.push_file("again", folder.file("weights.safetensors"));
    for (const NamedTensor& read : {near.get("weights"), near.get("again"), far.pull("weights")}) {
        REQUIRE(read.size() == 2);
        for (const auto& [name, tensor] : set)
            CHECK(identical(read[name], tensor));
        CHECK(read.metadata().at("step") == "8");
    }
    CHECK(identical(far.pull("weights/a bias").tensor(), set.at("a bias")));
    CHECK(server.totals()["uploads"] == kNoUploads);
}

TEST_CASE("a set of one tensor that has the set's name stays a set", "[client][push]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client()), far(server.far());
    const auto set = [](int first) { return std::map<std::string, TensorRef>{{"policy", numbers(4 << 20, first)}}; };
    const auto is_set = [&](int first) {
        const NamedTensor read = near.get("policy");
        return read.is_set() && identical(read["policy"], set(first).at("policy"));
    };
    far.push("policy", set(1));
    CHECK(is_set(1));
    far.push("policy", set(2), {.put = {.if_version = 1}, .part_bytes = 1 << 20});
    CHECK(is_set(2));
    for (int i = 3; i < 6; ++i) {  // a later version of a large set is uploaded
        near.put("policy", set(i));
        CHECK(is_set(i));
    }
    TemporaryFolder folder;
    near.get("policy").save(folder.file("policy.safetensors"));
    far.push_file("policy", folder.file("policy.safetensors"));
    CHECK(is_set(5));
    far.push("policy", set(7).at("policy"), {.put = {.metadata = {{"step", "7"}}}});
    CHECK_FALSE(near.get("policy").is_set());
}

TEST_CASE("the progress of a transfer is told by one thread at a time, to the last byte", "[client][push][pull]") {
    struct Stopped {};
    const ExampleDaemon server;
    const NamedTensors far(server.far());
    std::vector<std::uint64_t> told;
    std::uint64_t most = 0;
    const TransferProgress progress = [&](std::uint64_t bytes, std::uint64_t size) {
        told.push_back(bytes);
        most = size;
    };
    const auto check_all_told = [&](std::size_t times) {
        CHECK(told.size() == times);
        CHECK(std::is_sorted(told.begin(), told.end()));
        CHECK(told.back() == most);
        told.clear();
    };
    const TensorRef x = numbers(kCount);
    far.push("x", x, {.part_bytes = kBytes / 8, .progress = progress});
    CHECK(most == kBytes);
    check_all_told(1 + 8);  // the first says that nothing has arrived yet
    far.pull("x", {.range_bytes = kBytes / 8, .progress = progress});
    CHECK(most > kBytes);  // with the file's header
    check_all_told(1 + 8);
    const auto stop = [&](std::uint64_t bytes, std::uint64_t) {
        if (bytes > 0) throw Stopped();
    };
    CHECK_THROWS_AS(far.pull("x", {.progress = stop}), Stopped);
    CHECK_THROWS_AS(far.push("x", x, {.progress = stop}), Stopped);
    CHECK(server.totals()["uploads"] == kNoUploads);
}

TEST_CASE("every dtype and shape can be pushed and pulled", "[client][push][pull]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client()), far(server.far());
    for (const DType dtype : {DType::bool_, DType::uint8, DType::float16, DType::bfloat16, DType::float64,
                              DType::complex64, DType::complex128, DType::int64}) {
        for (const tensor::Shape& shape : {tensor::Shape{}, {0}, {3, 0, 2}, {5}, {300, 1001}}) {
            INFO(static_cast<int>(dtype) << ", " << shape.size() << " dimensions");
            const TensorRef x = numbered(dtype, shape);
            far.push("x", x);
            CHECK(identical(near.get("x").tensor(), x));
            CHECK(identical(far.pull("x").tensor(), x));
        }
    }
}

TEST_CASE("what safetensors files cannot hold is pulled whole, with its metadata", "[client][pull]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client()), far(server.far());
    const TensorRef complex = numbered(DType::complex128, {300, 101}), x = numbers(5);
    const PutOptions described{.metadata = {{"step", "7"}}};
    near.put("one", complex, described);
    near.put("set", std::map<std::string, TensorRef>{{"a", complex}, {"b", x}}, described);
    for (const PullOptions& options :
         {PullOptions{}, PullOptions{.version = 1}, PullOptions{.swarm = SwarmOptions()}}) {
        const NamedTensor one = far.pull("one", options), set = far.pull("set", options);
        CHECK(identical(one.tensor(), complex));
        CHECK(one.metadata() == described.metadata);
        CHECK(one.version() == 1);
        CHECK(identical(set["a"], complex));
        CHECK(identical(set["b"], x));
        CHECK(set.metadata() == described.metadata);
        CHECK(far.pull("set/a").metadata() == described.metadata);
    }
    CHECK(far.pull("one", {.first_row = 5, .last_row = 7}).metadata() == described.metadata);
    CHECK_THROWS_AS(far.pull("set", {.version = 2}), UnknownOrExpired);
}

TEST_CASE("what is pulled into memory of another server is published there without a copy", "[client][pull]") {
    const ExampleDaemon there, here;
    const Client own = here.client();
    const NamedTensors far(there.far()), near(own);
    const auto shared = [&](std::uint64_t bytes) {
        return own.empty_in_shared_memory({static_cast<std::int64_t>(bytes)}, DType::uint8);
    };
    const TensorRef x = numbers(kCount);
    far.push("x", x);
    far.push("set", std::map<std::string, TensorRef>{{"a", x}, {"b", numbers(999'999)}, {"c", numbers(3)}});
    for (const bool in_swarm : {false, true}) {
        PullOptions pull{.memory = shared};
        if (in_swarm) pull.swarm.emplace();
        const auto set = far.pull("set", pull).map();
        CHECK(identical(set.at("a"), x));
        const Published made = near.put("set", set);
        CHECK(made.copied == 0);
        CHECK(made.transport == "shm");
        CHECK(near.put("x", far.pull("x", pull).tensor()).copied == 0);
        CHECK(identical(near.get("x").tensor(), x));
        const NamedTensor got = near.get("set");
        CHECK(got.size() == 3);
        CHECK(identical(got["b"], numbers(999'999)));
    }
    far.push("small", numbers(10));
    CHECK(near.put("small", far.pull("small", {.memory = shared}).tensor()).bytes == 40);
}

TEST_CASE("what cannot be pulled or pushed is said", "[client][push][pull]") {
    const ExampleDaemon server({"--max-upload-bytes", std::to_string(kBytes)});
    const NamedTensors far(server.far());
    const TensorRef x = numbers(kCount);
    const Published first = far.push("x", x, {.put = {.if_version = 0}});
    CHECK_THROWS_AS(far.push("x", x, {.put = {.if_version = 0}}), InvalidParams);
    CHECK_THROWS_AS(far.push("x", x, {.put = {.if_version = 7}}), InvalidParams);
    const Published put = far.push("x", x, {.put = {.if_version = first.version}});
    CHECK(put.version > first.version);
    CHECK(far.push("copy", x, {.put = {.version = 40}}).version == 40);
    CHECK(far.push("copy", x, {.put = {.if_version = 40, .version = 45}}).version == 45);
    CHECK(far.put("copy", x, {.version = 50}).version == 50);
    CHECK_THROWS_AS(far.push("copy", x, {.put = {.version = 50}}), InvalidParams);
    CHECK_THROWS_AS(far.put("copy", x, {.version = 50}), InvalidParams);
    CHECK_THROWS_AS(far.push("l-x", x), InvalidParams);
    CHECK_THROWS_AS(far.push("x", numbers(kCount + 1)), InvalidParams);
    CHECK_THROWS_AS(far.push("x", x, {.connections = 0}), std::invalid_argument);
    CHECK_THROWS_AS(far.push("x", x, {.part_bytes = 0}), std::invalid_argument);
    CHECK_THROWS_AS(far.push("x", numbered(DType::complex128, {3}), {.put = {.metadata = {{"a", "b"}}}}), InvalidValue);

    CHECK_THROWS_AS(far.pull("y"), UnknownOrExpired);
    CHECK_THROWS_AS(far.pull("x/y"), UnknownOrExpired);
    CHECK_THROWS_AS(far.pull("x", {.version = put.version + 1}), UnknownOrExpired);
    CHECK(far.pull("x", {.version = put.version}).version() == put.version);
    CHECK_THROWS_AS(far.pull("x", {.first_row = 5, .last_row = 4}), InvalidParams);
    CHECK_THROWS_AS(far.pull("x", {.first_row = -1}), InvalidParams);
    CHECK_THROWS_AS(far.pull("x", {.connections = 0}), std::invalid_argument);
    CHECK_THROWS_AS(far.pull("x", {.range_bytes = 0}), std::invalid_argument);
}

TEST_CASE("a file may be larger than the answers of calls", "[client][pull]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client());
    const auto set_of = [](int first) {
        return std::map<std::string, TensorRef>{{"a", numbers(kCount, first)}, {"b", numbers(10)}};
    };
    near.put("set", set_of(0));
    ClientOptions small;
    small.max_answer_bytes = std::size_t{1} << 20;
    const NamedTensors plain(far_client(server.url(), small));
    small.compression.codings = "zstd";
    const NamedTensors compressed(far_client(server.url(), small));
    CHECK_THROWS_AS(plain.get("set"), RpcError);
    PullOptions swarm;
    swarm.swarm.emplace();
    CHECK(identical(plain.pull("set", {.range_bytes = 8 << 20})["a"], numbers(kCount)));
    CHECK(identical(plain.pull("set", swarm)["a"], numbers(kCount)));
    CHECK(identical(compressed.pull("set")["a"], numbers(kCount)));
    CHECK(identical(plain.pull("set", {.previous = plain.pull("set")})["a"], numbers(kCount)));
    std::jthread publisher([&](const std::stop_token& stop) {
        for (int first = 1; !stop.stop_requested(); ++first)
            near.put("set", set_of(first));
    });
    for (int i = 0; i < 10; ++i) {
        const NamedTensor got = plain.pull("set", {.connections = 1, .range_bytes = 300'000});
        CHECK(identical(got["a"], numbers(kCount, elements_of<std::int32_t>(got["a"])[0])));
    }
}

TEST_CASE("what breaks or is damaged on the way goes again, and a tensor is published once", "[client][push][pull]") {
    struct Case {
        const char* what;
        bool pushes;
        std::function<Harm(int connection)> harm;
    };
    std::vector<Case> cases{
        // Each answer has about 250 bytes: some connections end inside the first, others later.
        {"answers are lost", true,
         [](int connection) { return Harm{.cut_down = 100 + static_cast<unsigned>(connection % 4) * 333}; }},
        {"parts are damaged", true,
         [](int connection) {
             return connection <= 2 ? Harm{.damage_up = 100'000U * static_cast<unsigned>(connection)} : Harm();
         }},
        {"ranges are damaged", false, [](int connection) {
             return connection <= 2 ? Harm{.damage_down = 100'000U * static_cast<unsigned>(connection)} : Harm();
         }}};
    for (const bool reset : {false, true}) {
        for (const std::uint64_t every : {70'000, 262'144, 1'500'000})
            cases.push_back({reset ? "pulls are reset" : "pulls break off", false, [=](int connection) {
                                 return Harm{.cut_down = about(every, connection), .reset = reset};
                             }});
        for (const std::uint64_t every : {150'000, 400'000, 1'100'000})
            cases.push_back({reset ? "pushes are reset" : "pushes break off", true,
                             [=](int connection) { return Harm{.cut_up = about(every, connection), .reset = reset}; }});
    }
    const TensorRef x = numbers(2 * kCount);
    for (const auto& [what, pushes, harm] : cases) {
        INFO(what << ", first after " << std::min(harm(1).cut_down, harm(1).cut_up) << " bytes");
        const Behind behind(harm);
        const Client client = behind.client(pushes ? patient() : ClientOptions());
        if (pushes) {
            const PushOptions options{.connections = 3, .part_bytes = 100'000};  // less than what a connection carries
            const Published published = NamedTensors(client).push("x", x, options);
            CHECK(identical(behind.near.get("x").tensor(), x));
            CHECK(behind.near.get("x").version() == published.version);
        } else {
            behind.near.put("x", x);
            CHECK(identical(NamedTensors(client).pull("x", {.connections = 3, .range_bytes = 250'000}).tensor(), x));
            CHECK(client.statistics().requests == 1);
            // What came before a break was not sent again; a reset may destroy what is on its way.
            if (!harm(1).reset) CHECK(behind.proxy.bytes_down() < 2 * kBytes + 4'000'000);
        }
        CHECK(client.statistics().retries > 0);
        CHECK(behind.server.totals()["named_tensors"]["published"] == 1);
    }
}

TEST_CASE("without verification bytes that are damaged on the way are taken", "[client][push][pull]") {
    const Behind behind([](int) { return Harm{.damage_down = 300'000, .damage_up = 300'000}; });
    behind.near.put("x", numbers(kCount));
    const NamedTensors far(behind.client());
    CHECK_FALSE(identical(far.pull("x", {.connections = 1, .verify = false}).tensor(), numbers(kCount)));
    const NamedTensors other(behind.client());
    other.push("y", numbers(kCount), {.connections = 1, .verify = false});
    CHECK_FALSE(identical(behind.near.get("y").tensor(), numbers(kCount)));
}

TEST_CASE("a pull is whole wherever its connection is cut: at the edge of each range and head, and inside",
          "[client][pull]") {
    constexpr std::uint64_t kRange = 10'000, kRanges = 8;
    std::atomic<std::uint64_t> cut{Harm::kNever};
    const Behind behind([&](int) { return Harm{.cut_down = cut.exchange(Harm::kNever)}; });  // one connection
    const FaultyProxy& proxy = behind.proxy;
    const TensorRef x = numbers(static_cast<std::int64_t>(kRange * kRanges / 4));
    behind.near.put("x", x);
    ClientOptions options;
    options.retry = fixed_delay(1ms, 5);
    const auto pulls = [&] {
        const std::uint64_t before = proxy.bytes_down();
        const Client client = behind.client(options);
        const auto pulled = NamedTensors(client).pull("x", {.connections = 1, .range_bytes = kRange});
        REQUIRE(identical(pulled.tensor(), x));
        REQUIRE(client.statistics().retries <= 1);
        return proxy.bytes_down() - before;
    };
    const std::uint64_t whole = pulls();
    REQUIRE(whole > kRange * kRanges);
    for (const std::uint64_t place : edges(whole, kRange, kRanges)) {
        INFO("cut after " << place << " of " << whole << " bytes");
        const int connections = proxy.connections();
        cut = place;
        pulls();
        REQUIRE(proxy.connections() == connections + 2);
    }
}

TEST_CASE("a push is whole wherever its connection is cut: at the edge of each part and head, and inside",
          "[client][push]") {
    constexpr std::uint64_t kPart = 10'000, kParts = 8;
    std::atomic<std::uint64_t> cut{Harm::kNever};
    const Behind behind([&](int) { return Harm{.cut_up = cut.exchange(Harm::kNever)}; });  // one connection
    ClientOptions options;
    options.retry = fixed_delay(1ms, 5);
    int pushes = 0;
    const auto pushed = [&] {
        const TensorRef x = numbers(static_cast<std::int64_t>(kPart * kParts / 4), ++pushes);
        const Client client = behind.client(options);
        NamedTensors(client).push("x", x, {.connections = 1, .part_bytes = kPart});
        const NamedTensor got = behind.near.get("x");
        REQUIRE(identical(got.tensor(), x));
        REQUIRE(got.version() == static_cast<std::uint64_t>(pushes));  // published once
        return client.statistics();
    };
    const std::uint64_t whole = pushed().bytes_out;
    REQUIRE(whole > kPart * kParts);
    for (const std::uint64_t place : edges(whole, kPart, kParts)) {
        INFO("cut after " << place << " of " << whole << " bytes");
        cut = place;
        REQUIRE(pushed().retries <= 2);
    }
    CHECK(behind.server.totals()["uploads"] == kNoUploads);
}

TEST_CASE("a push that failed is resumed by the next one of the same", "[client][push]") {
    std::atomic<bool> breaks{true};
    const Behind behind([&](int) { return breaks ? Harm{.cut_up = 2'500'000} : Harm{}; });
    const NamedTensors& near = behind.near;
    const NamedTensors far(behind.server.far());
    const TensorRef x = numbers(2 * kCount);
    const PushOptions resumed{.connections = 1, .part_bytes = 1'000'000, .resume = true};
    const auto open = [&] { return behind.server.totals()["uploads"]["open"]; };
    CHECK_THROWS_AS(NamedTensors(behind.client(hasty())).push("x", x, resumed), TransportFailure);
    CHECK_FALSE(near.watch("x", 0, 0ms).has_value());
    CHECK(open() == 1);
    breaks = false;
    const auto push_again = [&](const TensorRef& tensor) {
        const Client client = behind.client();
        NamedTensors(client).push("x", tensor, resumed);
        CHECK(identical(near.get("x").tensor(), tensor));
        return client.statistics().bytes_out;
    };
    const std::uint64_t rest = push_again(x);
    CHECK(rest > 5'000'000);
    CHECK(rest < 6'500'000);  // two of eight parts were there
    CHECK(open() == 0);
    CHECK(push_again(numbers(2 * kCount, 1)) > 8'000'000);  // others have nothing of it
    CHECK(push_again(x) > 8'000'000);                       // nor has it itself once it is published
    CHECK(near.get("x").version() == 3);
    CHECK_THROWS_AS(NamedTensors(far_client("http://127.0.0.1:1", hasty())).push("x", x, resumed), TransportFailure);
    CHECK_THROWS_AS(far.push("l-x", x, resumed), InvalidParams);
    PushOptions conditional = resumed;
    conditional.put.if_version = 7;
    CHECK_THROWS_AS(far.push("x", x, conditional), InvalidParams);
    CHECK(open() == 0);
}

TEST_CASE("what a push left behind is not taken for another one's bytes", "[client][push]") {
    std::atomic<bool> harms{true};
    const Behind behind([&](int) { return harms ? Harm{.cut_up = 2'500'000, .damage_up = 1'500'000} : Harm{}; });
    const TensorRef x = numbers(2 * kCount);
    PushOptions resumed{.connections = 1, .part_bytes = 1'000'000, .verify = false, .resume = true};
    CHECK_THROWS_AS(NamedTensors(behind.client(hasty())).push("x", x, resumed), TransportFailure);
    harms = false;
    resumed.verify = true;
    const Client client = behind.client();
    NamedTensors(client).push("x", x, resumed);
    CHECK(identical(behind.near.get("x").tensor(), x));
    CHECK(client.statistics().bytes_out > 6'000'000);  // the damaged part was rejected: it is sent with the rest
}

TEST_CASE("a push outlives a new start of its server", "[client][push]") {
    std::atomic<Child*> victim{nullptr};
    std::atomic<bool> is_killed{false};
    FaultyProxy proxy([&](int connection) {
        if (Child* child = connection == 4 ? victim.load() : nullptr) {
            child->signal(SIGKILL);
            is_killed = true;
        }
        return Harm{.cut_up = 1'000'000};
    });
    const Words options{"--allowed-host", proxy.authority()};
    auto server = std::make_unique<ExampleDaemon>(options);
    victim = &server->daemon.child();
    const int port = server->daemon.port();
    proxy.pass_on_to(port);
    ClientOptions stubborn = patient();
    stubborn.retry = fixed_delay(20ms, 1000);
    auto pushed = std::async(std::launch::async, [&] {  // a child dies with the thread that made it: not in this one
        NamedTensors(far_client(proxy.url(), stubborn))
            .push("x", numbers(8 * kCount), {.connections = 2, .part_bytes = 200'000});
    });
    REQUIRE(eventually([&] { return is_killed.load(); }));
    CHECK(server->daemon.child().wait() == 128 + SIGKILL);
    server = std::make_unique<ExampleDaemon>(joined(options, {"--port", std::to_string(port)}));
    pushed.get();
    CHECK(identical(NamedTensors(server->client()).get("x").tensor(), numbers(8 * kCount)));
}

TEST_CASE("a pull from a server that dies and a push to one that is gone fail soon", "[client][push][pull]") {
    std::atomic<Child*> victim{nullptr};
    Behind behind([&](int connection) {
        if (Child* child = connection == 3 ? victim.load() : nullptr) child->signal(SIGKILL);
        return Harm{.cut_down = 2'000'000};
    });
    behind.near.put("x", numbers(4 * kCount));
    victim = &behind.server.daemon.child();
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(NamedTensors(behind.client()).pull("x", {.connections = 1}), TransportFailure);
    CHECK(behind.server.daemon.child().wait() == 128 + SIGKILL);
    FaultyProxy gone([](int) { return Harm{.cut_up = 0}; });
    gone.pass_on_to(1);
    CHECK_THROWS_AS(NamedTensors(far_client(gone.url())).push("x", numbers(kCount)), TransportFailure);
    CHECK(std::chrono::steady_clock::now() - start < 30s);
}

TEST_CASE("a tensor that is published anew meanwhile is pulled of one version", "[client][pull]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client()), far(server.far());
    near.put("x", numbers(kCount));
    std::jthread publisher([&](const std::stop_token& stop) {
        for (int first = 1; !stop.stop_requested(); ++first)
            near.put("x", numbers(kCount, first));
    });
    for (int i = 0; i < 30; ++i) {
        const TensorRef x = far.pull("x", {.connections = 2, .range_bytes = 300'000}).tensor();
        CHECK(identical(x, numbers(kCount, elements_of<std::int32_t>(x)[0])));
    }
}

TEST_CASE("many readers of one tensor cost the server no memory each", "[client][pull]") {
    ExampleDaemon server;
    const TensorRef x = numbers(4 * kCount);
    NamedTensors(server.client()).put("x", x);
    const pid_t pid = server.daemon.child().pid();
    const std::uint64_t before = peak_bytes(pid);
    std::atomic<int> right{0};
    {
        std::vector<std::jthread> readers;
        for (int i = 0; i < 200; ++i) {
            readers.emplace_back([&] {
                right += identical(NamedTensors(server.far()).pull("x", {.connections = 1}).tensor(), x) ? 1 : 0;
            });
        }
    }
    CHECK(right == 200);
    CHECK(peak_bytes(pid) < before + (std::uint64_t{200} << 20));  // threads and sockets; the tensors have 3.2 GB
}

TEST_CASE("a result that stayed in the server is fetched by its url, and its lease given up", "[client][pull]") {
    const ExampleDaemon server;
    ClientOptions options;
    options.accept = "url";
    const Client client = far_client(server.url(), options);
    CHECK(identical(client.call<TensorRef>("scale", ramp(2 * kCount), 2.0), ramp(2 * kCount, 2)));
    CHECK(server.leases() == 0);
    const auto transports = client.transports();
    CHECK(std::any_of(transports.begin(), transports.end(),
                      [](const TransportInfo& transport) { return transport.name == "url" && transport.usable; }));
}
