// zstd and gzip, where both sides agree and the bytes shrink.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include <shared_tensor/json.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "../client/example_daemon.hpp"
#include "base/bytes/compression.hpp"
#include "support/faulty_proxy.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::int64_t kCount = 1'000'000;

/// Which shrinks, and which does not.
at::Tensor smooth(std::int64_t count = kCount) { return at::arange(count, at::kInt); }
at::Tensor noise(std::int64_t count = kCount) { return at::randint(0, 256, {count}, at::kByte); }

Client far_client(const std::string& url, const std::string& compression, int level = 1) {
    ClientOptions options;
    options.url = url;
    options.local_socket = "none";
    options.compression = {compression, level};
    return Client(options);
}

std::string gunzip(const std::string& bytes, const char* program = "/bin/gzip") {
    TemporaryFolder folder;
    const std::string in = folder.write("in", bytes), out = folder.file("out"), err = folder.file("err");
    Child child({program, "-dc", in}, {}, out, err);
    CHECK(child.wait() == 0);
    return text_of_file(out);
}
std::string gzip(const std::string& text) {
    TemporaryFolder folder;
    const std::string in = folder.write("in", text), out = folder.file("out"), err = folder.file("err");
    Child child({"/bin/gzip", "-c", in}, {}, out, err);
    CHECK(child.wait() == 0);
    return text_of_file(out);
}

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

HttpReply get(int port, const std::string& path, const HeaderList& headers = {}) {
    HttpPeer peer(port);
    peer.request("GET", path, "", headers);
    HttpReply reply = peer.read_head();
    if (reply.header("Transfer-Encoding") == "chunked") {
        while (const std::size_t size = std::stoul(peer.read_line(), nullptr, 16)) {
            reply.body += peer.read_bytes(size);
            peer.read_line();
        }
    } else {
        reply.body = peer.read_bytes(std::stoul("0" + reply.header("Content-Length")));
    }
    return reply;
}

HttpReply put(int port, const std::string& path, const std::string& body, const HeaderList& headers) {
    HttpPeer peer(port);
    peer.request("PUT", path, body, headers);
    return peer.read();
}

}  // namespace

TEST_CASE("tensors of calls are compressed both ways, each if it shrinks", "[compression]") {
    const ExampleDaemon server;
    const Client client = far_client(server.url(), "zstd");
    client.call<double>("add", 1, 2);  // from then on it is known what the server knows
    const at::Tensor x = smooth().to(at::kFloat);
    CHECK(at::equal(client.call<at::Tensor>("scale", x, 2.0), at::mul(x, 2.0)));
    const ClientStatistics statistics = client.statistics();
    const auto bytes = static_cast<std::uint64_t>(x.nbytes());
    CHECK(statistics.uncompressed_out == bytes);
    CHECK(statistics.uncompressed_in == bytes);
    CHECK(statistics.compressed_out < bytes * 9 / 10);
    CHECK(statistics.compressed_in < bytes * 9 / 10);
    CHECK(statistics.bytes_out < bytes * 9 / 10);
    CHECK(statistics.bytes_in < bytes * 9 / 10);
    const Json totals = call(server.daemon.port(), "server.info")["totals"]["compression"];
    CHECK(totals["in"]["uncompressed_bytes"] == bytes);
    CHECK(totals["out"]["ratio"] > 1.1);
}

TEST_CASE("what does not shrink goes as it is", "[compression]") {
    const ExampleDaemon server;
    const Client client = far_client(server.url(), "zstd");
    client.call<double>("add", 1, 2);
    const at::Tensor x = noise();
    CHECK(at::equal(client.call<at::Tensor>("scale", x, 1.0), x.to(at::kFloat)));
    CHECK(client.statistics().compressed_out == 0);
}

TEST_CASE("nothing is compressed unless both sides want it", "[compression]") {
    SECTION("the client does not") {
        const ExampleDaemon server;
        const Client client = far_client(server.url(), "none");
        client.call<double>("add", 1, 2);
        client.call<at::Tensor>("scale", smooth().to(at::kFloat), 2.0);
        CHECK(client.statistics().compressed_out + client.statistics().compressed_in == 0);
    }
    SECTION("the server does not") {
        const ExampleDaemon server({"--compression", GENERATE("none", "gzip")});  // gzip is for JSON and files alone
        const Client client = far_client(server.url(), "zstd");
        client.call<double>("add", 1, 2);
        const at::Tensor x = smooth().to(at::kFloat);
        CHECK(at::equal(client.call<at::Tensor>("scale", x, 2.0), at::mul(x, 2.0)));
        CHECK(client.statistics().compressed_out + client.statistics().compressed_in == 0);
        NamedTensors(client).push("x", x);
        CHECK(at::equal(NamedTensors(client).pull("x").tensor(), x));
        CHECK(client.statistics().compressed_in == 0);
    }
    SECTION("they share memory") {
        const ExampleDaemon server;
        ClientOptions options;
        options.url = server.url();
        options.compression.codings = "zstd";
        const Client client(options);
        client.call<double>("add", 1, 2);
        client.call<at::Tensor>("scale", smooth().to(at::kFloat), 2.0);
        client.call<at::Tensor>("scale", smooth(2000).to(at::kFloat), 2.0);
        CHECK(client.statistics().compressed_out + client.statistics().compressed_in == 0);
    }
}

TEST_CASE("files are pushed compressed part by part, and pulled compressed as a whole", "[compression]") {
    const ExampleDaemon server;
    const Client client = far_client(server.url(), "zstd");
    const NamedTensors names(client);
    for (const std::int64_t count : {0L, 1L, 100L, 300'000L, 3'000'000L}) {
        names.push("x", smooth(count), {.connections = 3, .part_bytes = 1'000'000});
        CHECK(at::equal(names.pull("x", {.connections = 3, .range_bytes = 700'001}).tensor(), smooth(count)));
    }
    const auto bytes = static_cast<std::uint64_t>(4 * (300'000 + 3'000'000));
    CHECK(client.statistics().uncompressed_out >= bytes);
    CHECK(client.statistics().uncompressed_in >= bytes);
    CHECK(client.statistics().compressed_in < bytes * 9 / 10);
    CHECK(at::equal(names.pull("x", {.first_row = 10, .last_row = 20'000}).tensor(), smooth().slice(0, 10, 20'000)));
    const at::Tensor x = noise();
    names.push("noise", x);
    CHECK(at::equal(names.pull("noise").tensor(), x));
    CHECK_THROWS_AS(names.pull("y"), UnknownOrExpired);
}

TEST_CASE("a higher level makes less of it, both ways", "[compression]") {
    const auto sent_and_got = [](int level) {
        const ExampleDaemon server({"--compression-level", std::to_string(level)});
        const Client client = far_client(server.url(), "zstd", level);
        const NamedTensors names(client);
        const at::Tensor text = at::mul(at::sin(at::arange(kCount, at::kFloat)), 100).to(at::kChar);
        names.push("x", text);
        CHECK(at::equal(names.pull("x").tensor(), text));
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
    FaultyProxy proxy([](int connection) {
        const auto at = 20'000 + static_cast<unsigned>(connection % 5) * 30'011;
        return connection % 2 == 0 ? Harm{.cut_down = at} : Harm{.cut_up = at};
    });
    const ExampleDaemon server({"--allowed-host", proxy.authority()});
    proxy.pass_on_to(server.daemon.port());
    ClientOptions options;
    options.url = proxy.url();
    options.local_socket = "none";
    options.compression.codings = "zstd";
    options.retry = fixed_delay(std::chrono::milliseconds(5), 100);
    options.retry_budget.saved = 10'000;
    const Client client(options);
    const NamedTensors names(client);
    const at::Tensor x = smooth(2'000'000);
    names.push("x", x, {.connections = 2, .part_bytes = 100'000});
    CHECK(at::equal(names.pull("x", {.connections = 2, .range_bytes = 100'000}).tensor(), x));
    CHECK(client.statistics().retries > 0);
}

TEST_CASE("a compressed file that came damaged or broke off is fetched in ranges", "[compression]") {
    const Harm harm = GENERATE(Harm{.damage_down = 100'000}, Harm{.cut_down = 100'000});
    FaultyProxy proxy([&](int connection) { return connection == 1 ? harm : Harm(); });
    const ExampleDaemon server({"--allowed-host", proxy.authority()});
    proxy.pass_on_to(server.daemon.port());
    const at::Tensor x = at::randint(40, {kCount}, at::kChar);  // compressed it is longer than the harm is far
    NamedTensors(server.client()).put("x", x);
    const Client client = far_client(proxy.url(), "zstd");
    CHECK(at::equal(NamedTensors(client).pull("x").tensor(), x));
    CHECK(client.statistics().compressed_in == 0);
}

TEST_CASE("items of streams are compressed both ways", "[compression][streams]") {
    const ExampleDaemon server;
    const Client client = far_client(server.url(), "zstd");
    auto call = client.stream<std::int64_t>("scale_each", named("factor", 3.0));
    auto tensors = call.writer<at::Tensor>();
    auto scaled = call.reader<at::Tensor>();
    for (int i = 0; i < 10; ++i) {
        const at::Tensor x = smooth(i % 2 == 0 ? 100'000 : 10).to(at::kFloat);
        REQUIRE(tensors.write(x));
        const auto got = scaled.next();
        REQUIRE(got);
        CHECK(at::equal(*got, at::mul(x, 3.0)));
    }
    tensors.end();
    CHECK(call.result() == 10);
    CHECK(client.statistics().uncompressed_out == 5 * 400'000);
    CHECK(client.statistics().uncompressed_in == 5 * 400'000);
    CHECK(client.statistics().compressed_in < 5 * 360'000);
}

TEST_CASE("a stranger gets and puts files compressed, by HTTP alone", "[compression]") {
    const ExampleDaemon server;
    const int port = server.daemon.port();
    const NamedTensors near(server.client());
    near.put("x", smooth());
    const std::string plain = get(port, "/tensors/x.raw").body;
    REQUIRE(plain.size() == 4 * kCount);
    const HttpReply whole = get(port, "/tensors/x.raw", {{"Accept-Encoding", "br, gzip;q=0.8"}});
    CHECK(whole.header("Content-Encoding") == "gzip");
    CHECK(whole.header("ETag").starts_with("W/"));
    CHECK(whole.body.size() < plain.size() * 9 / 10);
    CHECK(gunzip(whole.body) == plain);
    CHECK(get(port, "/tensors/x.raw?bytes=1000-1999").status == 400);  // Range does that
    CHECK(get(port, "/tensors/x.raw", {{"Accept-Encoding", "gzip;q=0, zstd;q=0.0"}}).body == plain);
    const HttpReply range = get(port, "/tensors/x.raw", {{"Accept-Encoding", "gzip"}, {"Range", "bytes=0-9999"}});
    CHECK(range.status == 206);
    CHECK(range.body == plain.substr(0, 10'000));
    const std::string etag = get(port, "/tensors/x.raw").header("ETag");
    CHECK(get(port, "/tensors/x.raw", {{"Accept-Encoding", "gzip"}, {"If-None-Match", whole.header("ETag")}}).status ==
          304);
    near.put("noise", noise());
    CHECK(get(port, "/tensors/noise.raw", {{"Accept-Encoding", "gzip"}}).header("Content-Encoding").empty());

    const HeaderList raw{
        {"Content-Encoding", "gzip"}, {"Shared-Tensor-Dtype", "int32"}, {"Shared-Tensor-Shape", "[1000000]"}};
    CHECK(put(port, "/tensors/y.raw", gzip(plain), raw).status == 201);
    CHECK(at::equal(near.get("y").tensor(), smooth()));
    SECTION("what is not right is rejected, and changes nothing") {
        CHECK(put(port, "/tensors/y.raw", plain, raw).status == 400);
        CHECK(put(port, "/tensors/y.raw", gzip(plain).substr(0, 5000), raw).status == 400);
        CHECK(put(port, "/tensors/y.raw", gzip(plain) + "more", raw).status == 400);
        HeaderList unknown = raw;
        unknown[0].second = "br";
        const HttpReply rejected = put(port, "/tensors/y.raw", plain, unknown);
        CHECK(rejected.status == 415);
        CHECK(rejected.header("Accept-Encoding") == "zstd, gzip");
        CHECK(at::equal(near.get("y").tensor(), smooth()));
        CHECK(near.get("y").version() == 1);
    }
}

TEST_CASE("JSON comes and goes compressed", "[compression]") {
    const ExampleDaemon server({"--max-json-bytes", "1M"});
    const int port = server.daemon.port();
    const Json list(50'000, "the same again");
    const std::string request = call_object("echo", Json::array({list})).dump();
    const HttpReply reply = post(port, gzip(request), {{"Content-Encoding", "gzip"}, {"Accept-Encoding", "gzip"}});
    CHECK(reply.header("Content-Encoding") == "gzip");
    CHECK(Json::parse(gunzip(reply.body))["result"] == list);
    const HttpReply small = post(port, call_object("add", {1, 2}).dump(), {{"Accept-Encoding", "gzip"}});
    CHECK(small.header("Content-Encoding").empty());
    CHECK(post(port, request, {{"Content-Encoding", "br"}}).status == 415);
    CHECK(post(port, request, {{"Content-Encoding", "gzip"}}).status == 400);
    SECTION("a few bytes that become a great many are rejected before they do") {
        const HttpReply bomb = post(port, gzip(std::string(100'000'000, ' ')), {{"Content-Encoding", "gzip"}});
        CHECK(bomb.status == 413);
        const Json memory = call(port, "server.info");
        CHECK(memory.contains("totals"));
    }
}

TEST_CASE("tensors that claim to be compressed are held to it", "[compression]") {
    const ExampleDaemon server;
    const int port = server.daemon.port();
    const std::string good = zstd(std::string(400, '\0'));
    const auto answer = [&](const Json& body, const Json& shape, const std::string& bytes) {
        const Json x{{"$tensor", {{"dtype", "float32"}, {"shape", shape}, {"body", body}}}};
        const HttpReply reply = post(port, framed(call_object("slow_sum", Json::array({x, 0.0})).dump(), bytes),
                                     {{"Content-Type", kFrame}});
        return Json::parse(reply.body);
    };
    const Json place{{"offset", 0}, {"size", good.size()}, {"coding", "zstd"}};
    CHECK(answer(place, {100}, good)["result"] == 0.0);
    CHECK(code_of(answer(place, {101}, good)) == -32602);
    CHECK(code_of(answer(place, {99}, good)) == -32602);
    CHECK(code_of(answer(place, {1'000'000'000'000}, good)) == -32602);
    Json wrong = place;
    for (const char* coding : {"br", "gzip", "identity"}) {
        wrong["coding"] = coding;
        CHECK(code_of(answer(wrong, {100}, good)) == -32602);
    }
    CHECK(code_of(answer(place, {100}, gzip(std::string(400, '\0')).substr(0, good.size()))) == -32602);
    wrong = place;
    wrong["size"] = good.size() + 1;
    CHECK(code_of(answer(wrong, {100}, good)) == -32602);
    wrong = place;
    wrong["offset"] = std::uint64_t{1} << 63;
    CHECK(code_of(answer(wrong, {100}, good)) == -32602);
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

TEST_CASE("options of compression that make no sense are rejected", "[compression]") {
    CHECK(run_daemon({"--port", "0", "--compression", "lzma"}).code == 1);
    CHECK(run_daemon({"--port", "0", "--compression-level", "10"}).code == 1);
    ClientOptions options;
    for (const char* wrong : {"lzma", "gzip", "zstd, gzip"}) {
        options.compression.codings = wrong;
        CHECK_THROWS_AS(Client(options), std::invalid_argument);
    }
    options.compression.codings = "zstd";
    options.compression.level = 0;
    CHECK_THROWS_AS(Client(options), std::invalid_argument);
}
