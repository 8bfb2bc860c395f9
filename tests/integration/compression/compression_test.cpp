// zstd and gzip, where both sides agree and the bytes shrink.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <random>
#include <thread>

#include "base/bytes/compression.hpp"
#include "integration/client/transfers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

constexpr std::int64_t kCount = 1'000'000;

/// Bytes below `bound`; of 256 values they do not shrink.
TensorRef noise(unsigned bound = 256) {
    std::mt19937 random(1);
    std::vector<std::uint8_t> elements(kCount);
    for (std::uint8_t& element : elements)
        element = static_cast<std::uint8_t>(random() % bound);
    return tensor_of(elements);
}

ClientOptions with_coding(const std::string& codings, int level = 1, ClientOptions options = {}) {
    options.compression = {codings, level};
    return options;
}
/// A client of another host. It has called once: from then on it knows the codings that the server knows.
Client zstd_client(const std::string& url, int level = 1, const char* codings = "zstd") {
    const Client client = far_client(url, with_coding(codings, level));
    client.call<double>("add", 1, 2);
    return client;
}
std::uint64_t compressed(const Client& client) {
    return client.statistics().compressed_out + client.statistics().compressed_in;
}

std::string gzip_program(const char* options, const std::string& bytes) {
    TemporaryFolder folder;
    const Ended ended = run_program({"/bin/gzip", options, folder.write("in", bytes)});
    CHECK(ended.code == 0);
    return ended.out;
}
std::string gzip(const std::string& text) { return gzip_program("-c", text); }
std::string gunzip(const std::string& bytes) { return gzip_program("-dc", bytes); }

/// As a tensor of a message.
std::string zstd(const std::string& bytes) {
    std::string out;
    Compressor compressor({Coding::zstd, 1}, bytes.size());
    compressor.add(std::as_bytes(std::span(bytes)), true, [&](std::span<const std::byte> piece) {
        out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return true;
    });
    return out;
}

}  // namespace

TEST_CASE("tensors of calls are compressed both ways, each if it shrinks", "[compression]") {
    const ExampleDaemon server;
    const Client client = zstd_client(server.url());
    const TensorRef x = ramp(kCount);
    CHECK(identical(client.call<TensorRef>("scale", x, 2.0), ramp(kCount, 2)));
    const ClientStatistics statistics = client.statistics();
    CHECK(statistics.uncompressed_out == x.bytes());
    CHECK(statistics.uncompressed_in == x.bytes());
    for (const std::uint64_t bytes :
         {statistics.compressed_out, statistics.compressed_in, statistics.bytes_out, statistics.bytes_in})
        CHECK(bytes < x.bytes() * 9 / 10);
    const Json totals = server.totals()["compression"];
    CHECK(totals["in"]["uncompressed_bytes"] == x.bytes());
    CHECK(totals["out"]["ratio"] > 1.1);

    const Client other = zstd_client(server.url());  // what does not shrink goes as it is
    CHECK(other.call<TensorRef>("scale", noise(), 1.0).elements() == kCount);
    CHECK(other.statistics().compressed_out == 0);
}

TEST_CASE("nothing is compressed unless both sides want it", "[compression]") {
    const TensorRef x = ramp(kCount);
    SECTION("the client does not") {
        const ExampleDaemon server;
        const Client client = zstd_client(server.url(), 1, "none");
        client.call<TensorRef>("scale", x, 2.0);
        CHECK(compressed(client) == 0);
    }
    SECTION("the server does not") {
        const ExampleDaemon server({"--compression", GENERATE("none", "gzip")});  // gzip is for JSON and files alone
        const Client client = zstd_client(server.url());
        CHECK(identical(client.call<TensorRef>("scale", x, 2.0), ramp(kCount, 2)));
        CHECK(compressed(client) == 0);
        NamedTensors(client).push("x", x);
        CHECK(identical(NamedTensors(client).pull("x").tensor(), x));
        CHECK(client.statistics().compressed_in == 0);
    }
    SECTION("they share memory") {
        const ExampleDaemon server;
        ClientOptions options = with_coding("zstd");
        options.url = server.url();
        const Client client(options);
        client.call<double>("add", 1, 2);
        client.call<TensorRef>("scale", x, 2.0);
        client.call<TensorRef>("scale", ramp(2000), 2.0);
        CHECK(compressed(client) == 0);
    }
}

TEST_CASE("files are pushed compressed part by part, and pulled compressed as a whole", "[compression]") {
    const ExampleDaemon server;
    const Client client = zstd_client(server.url());
    const NamedTensors names(client);
    for (const std::int64_t count : {0L, 1L, 100L, 300'000L, 3'000'000L}) {
        names.push("x", numbers(count), {.connections = 3, .part_bytes = 1'000'000});
        CHECK(identical(names.pull("x", {.connections = 3, .range_bytes = 700'001}).tensor(), numbers(count)));
    }
    const auto bytes = static_cast<std::uint64_t>(4 * (300'000 + 3'000'000));
    CHECK(client.statistics().uncompressed_out >= bytes);
    CHECK(client.statistics().uncompressed_in >= bytes);
    CHECK(client.statistics().compressed_in < bytes * 9 / 10);
    CHECK(identical(names.pull("x", {.first_row = 10, .last_row = 20'000}).tensor(), numbers(19'990, 10)));
    names.push("noise", noise());
    CHECK(identical(names.pull("noise").tensor(), noise()));
    CHECK_THROWS_AS(names.pull("y"), UnknownOrExpired);
}

TEST_CASE("a higher level makes less of it, both ways", "[compression]") {
    std::vector<std::int8_t> wave(kCount);
    for (std::size_t i = 0; i < wave.size(); ++i)
        wave[i] = static_cast<std::int8_t>(std::sin(static_cast<float>(i)) * 100);
    const TensorRef text = tensor_of(wave);
    const auto sent_and_got = [&](int level) {
        const ExampleDaemon server({"--compression-level", std::to_string(level)});
        const Client client = zstd_client(server.url(), level);
        NamedTensors(client).push("x", text);
        CHECK(identical(NamedTensors(client).pull("x").tensor(), text));
        const auto counts = client.statistics();
        CHECK(counts.uncompressed_in >= kCount);
        CHECK(counts.uncompressed_out >= kCount);
        return std::pair(counts.compressed_out, counts.compressed_in);
    };
    const auto fast = sent_and_got(1), small = sent_and_got(9);
    CHECK(small.first < fast.first);
    CHECK(small.second < fast.second);
}

TEST_CASE("compressed parts of a push that break off come again, a compressed pull goes on in ranges",
          "[compression]") {
    const Behind behind([](int connection) {
        const auto at = 20'000 + static_cast<unsigned>(connection % 5) * 30'011;
        return connection % 2 == 0 ? Harm{.cut_down = at} : Harm{.cut_up = at};
    });
    const Client client = behind.client(with_coding("zstd", 1, patient()));
    const NamedTensors names(client);
    const TensorRef x = numbers(2'000'000);
    names.push("x", x, {.connections = 2, .part_bytes = 100'000});
    CHECK(identical(names.pull("x", {.connections = 2, .range_bytes = 100'000}).tensor(), x));
    CHECK(client.statistics().retries > 0);
}

TEST_CASE("a compressed file that came damaged or broke off is fetched in ranges", "[compression]") {
    const Harm harm = GENERATE(Harm{.damage_down = 100'000}, Harm{.cut_down = 100'000});
    const Behind behind([&](int connection) { return connection == 1 ? harm : Harm(); });
    const TensorRef x = noise(40);  // compressed it is longer than the harm is far
    behind.near.put("x", x);
    const Client client = behind.client(with_coding("zstd"));
    CHECK(identical(NamedTensors(client).pull("x").tensor(), x));
    CHECK(client.statistics().compressed_in == 0);
}

TEST_CASE("items of streams are compressed both ways", "[compression][streams]") {
    const ExampleDaemon server;
    const Client client = zstd_client(server.url());
    auto call = client.stream<std::int64_t>("scale_each", named("factor", 3.0));
    auto tensors = call.writer<TensorRef>();
    auto scaled = call.reader<TensorRef>();
    for (int i = 0; i < 10; ++i) {
        const std::int64_t count = i % 2 == 0 ? 100'000 : 10;
        REQUIRE(tensors.write(ramp(count)));
        const auto got = scaled.next();
        REQUIRE(got);
        CHECK(identical(*got, ramp(count, 3)));
    }
    tensors.end();
    CHECK(call.result() == 10);
    CHECK(client.statistics().uncompressed_out == 5 * 400'000);
    CHECK(client.statistics().uncompressed_in == 5 * 400'000);
    CHECK(client.statistics().compressed_in < 5 * 360'000);
}

TEST_CASE("a client without our library gets and puts files compressed, by HTTP alone", "[compression]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client());
    const TensorRef x = numbers(kCount);
    near.put("x", x);
    near.put("noise", noise());
    const auto get = [&](const char* path, const HeaderList& headers = {}) {
        return http_request(server.daemon.port(), "GET", path, "", headers);
    };
    const std::string plain = get("/tensors/x.raw").body;
    REQUIRE(plain.size() == 4 * kCount);
    const HttpReply whole = get("/tensors/x.raw", {{"Accept-Encoding", "br, gzip;q=0.8"}});
    CHECK(whole.header("Content-Encoding") == "gzip");
    CHECK(whole.header("ETag").starts_with("W/"));
    CHECK(whole.body.size() < plain.size() * 9 / 10);
    CHECK(gunzip(whole.body) == plain);
    CHECK(get("/tensors/x.raw?bytes=1000-1999").status == 400);  // Range does that
    CHECK(get("/tensors/x.raw", {{"Accept-Encoding", "gzip;q=0, zstd;q=0.0"}}).body == plain);
    const HttpReply range = get("/tensors/x.raw", {{"Accept-Encoding", "gzip"}, {"Range", "bytes=0-9999"}});
    CHECK(range.status == 206);
    CHECK(range.body == plain.substr(0, 10'000));
    const HeaderList known{{"Accept-Encoding", "gzip"}, {"If-None-Match", whole.header("ETag")}};
    CHECK(get("/tensors/x.raw", known).status == 304);
    CHECK(get("/tensors/noise.raw", {{"Accept-Encoding", "gzip"}}).header("Content-Encoding").empty());

    const auto put = [&](const std::string& body, const char* coding = "gzip") {
        return http_request(
            server.daemon.port(), "PUT", "/tensors/y.raw", body,
            {{"Content-Encoding", coding}, {"Shared-Tensor-Dtype", "int32"}, {"Shared-Tensor-Shape", "[1000000]"}});
    };
    CHECK(put(gzip(plain)).status == 201);
    for (const std::string& wrong : {plain, gzip(plain).substr(0, 5000), gzip(plain) + "more"})
        CHECK(put(wrong).status == 400);
    const HttpReply rejected = put(plain, "br");
    CHECK(rejected.status == 415);
    CHECK(rejected.header("Accept-Encoding") == "zstd, gzip");
    CHECK(identical(near.get("y").tensor(), x));
    CHECK(near.get("y").version() == 1);
}

TEST_CASE("JSON comes and goes compressed", "[compression]") {
    const Daemon server({"--max-json-bytes", "1M", "--load", kExamplePlugin});
    const int port = server.port();
    const HeaderList coded{{"Content-Encoding", "gzip"}};
    const Json list(50'000, "the same again");
    const std::string request = call_object("echo", Json::array({list})).dump();
    const HttpReply reply = post(port, gzip(request), {{"Content-Encoding", "gzip"}, {"Accept-Encoding", "gzip"}});
    CHECK(reply.header("Content-Encoding") == "gzip");
    CHECK(Json::parse(gunzip(reply.body))["result"] == list);
    const HttpReply small = post(port, call_object("add", {1, 2}).dump(), {{"Accept-Encoding", "gzip"}});
    CHECK(small.header("Content-Encoding").empty());
    CHECK(post(port, request, {{"Content-Encoding", "br"}}).status == 415);
    CHECK(post(port, request, coded).status == 400);
    // A few bytes that become a great many are rejected before they do.
    CHECK(post(port, gzip(std::string(100'000'000, ' ')), coded).status == 413);
    CHECK(call(port, "server.info").contains("totals"));
}

TEST_CASE("tensors that claim to be compressed are held to it", "[compression]") {
    const ExampleDaemon server;
    const int port = server.daemon.port();
    const std::string good = zstd(std::string(400, '\0')), other = gzip(std::string(400, '\0')).substr(0, good.size());
    struct Case {
        Json change = Json::object();  // of the place in the body
        std::int64_t count = 100;
        const std::string* bytes = nullptr;
        int code = -32602;
    };
    for (const Case& one : std::initializer_list<Case>{
             {Json::object(), 100, nullptr, 0},
             {Json::object(), 101},
             {Json::object(), 99},
             {Json::object(), 1'000'000'000'000},
             {{{"coding", "br"}}},
             {{{"coding", "gzip"}}},
             {{{"coding", "identity"}}},
             {Json::object(), 100, &other},
             {{{"size", good.size() + 1}}},
             {{{"offset", std::uint64_t{1} << 63}}},
         }) {
        Json place{{"offset", 0}, {"size", good.size()}, {"coding", "zstd"}};
        place.update(one.change);
        const Json x{{"$tensor", {{"dtype", "float32"}, {"shape", {one.count}}, {"body", place}}}};
        const std::string message = call_object("slow_sum", Json::array({x, 0.0})).dump();
        const HttpReply reply =
            post(port, framed(message, one.bytes != nullptr ? *one.bytes : good), {{"Content-Type", kFrame}});
        INFO(message);
        const Json answer = Json::parse(reply.body);
        CHECK(code_of(answer) == one.code);
        if (one.code == 0) CHECK(answer["result"] == 0.0);
    }
    CHECK(call_code(port, "add", {1, 2}) == 0);
}

TEST_CASE("what becomes large counts as if it had come so", "[compression]") {
    const ExampleDaemon server({"--max-bytes-in-flight", "8M", "--queue", "64"});
    const int port = server.daemon.port();
    const std::string zeros = zstd(std::string(6'000'000, '\0'));  // a few KB
    const Json x{{"$tensor",
                  {{"dtype", "uint8"},
                   {"shape", {6'000'000}},
                   {"body", {{"offset", 0}, {"size", zeros.size()}, {"coding", "zstd"}}}}}};
    const auto ask = [&](double seconds) {
        const std::string message = call_object("slow_sum", Json::array({x, seconds})).dump();
        return Json::parse(post(port, framed(message, zeros), {{"Content-Type", kFrame}}).body);
    };
    // Again and again: it may be the one that is rejected, by the short ones below.
    std::jthread slow([&](const std::stop_token& stop) {
        while (!stop.stop_requested())
            ask(0.5);
    });
    CHECK(eventually([&] { return code_of(ask(0.0)) == -32008; }));  // while the other one is held
    slow.request_stop();
    slow.join();
    CHECK(eventually([&] { return ask(0.0).contains("result"); }));
    const std::string text = gzip(call_object("echo", Json::array({std::string(3'000'000, 'a')})).dump());
    CHECK(post(port, text, {{"Content-Encoding", "gzip"}}).status == 200);
    const Daemon small({"--max-bytes-in-flight", "1M"});
    CHECK(post(small.port(), text, {{"Content-Encoding", "gzip"}}).status == 503);
}

TEST_CASE("options of compression that make no sense are rejected by the client", "[compression]") {
    for (const char* wrong : {"lzma", "gzip", "zstd, gzip"})
        CHECK_THROWS_AS(Client(with_coding(wrong)), std::invalid_argument);
    CHECK_THROWS_AS(Client(with_coding("zstd", 0)), std::invalid_argument);
}
