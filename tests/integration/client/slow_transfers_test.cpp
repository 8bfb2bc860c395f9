// Clients that ask for a large file and do not read it, or announce one and do not send it.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <shared_tensor/json.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "example_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::StartsWith;

namespace {

constexpr int kClients = 40;
constexpr std::int64_t kBigCount = 16 << 20, kBigBytes = 4 * kBigCount;

at::Tensor numbers(std::int64_t count) { return at::arange(count, at::kInt); }

std::int64_t kilobytes(ExampleDaemon& server, const std::string& what) {
    const std::string status = text_of_file("/proc/" + std::to_string(server.daemon.child().pid()) + "/status");
    return std::stoll(status.substr(status.find(what + ":") + what.size() + 1));
}

/// What lies in mappings that could hold a whole big file: buffers for bodies, whether they are written to or not.
std::int64_t mapped_for_big(ExampleDaemon& server) {
    std::istringstream maps(text_of_file("/proc/" + std::to_string(server.daemon.child().pid()) + "/maps"));
    std::int64_t bytes = 0;
    for (std::string line; std::getline(maps, line);) {
        std::istringstream words(line);
        std::int64_t first = 0, end = 0, inode = 0;
        char dash = 0;
        std::string access, offset, device;
        words >> std::hex >> first >> dash >> end >> access >> offset >> device >> std::dec >> inode;
        if (access == "rw-p" && inode == 0 && end - first >= kBigBytes) bytes += end - first;
    }
    return bytes;
}

/// That of the question is one of them.
int connections(const ExampleDaemon& server) { return server.totals()["connections"].get<int>(); }

Words with(Words options, const Words& more) {
    options.insert(options.end(), more.begin(), more.end());
    return options;
}

/// What takes a worker, what takes none, and files in both directions.
void check_that_it_serves(const ExampleDaemon& server) {
    const Client near = server.client(), far = server.far();
    CHECK(near.call<double>("add", 1, 2) == 3.0);
    CHECK(near.call<double>("sleep", 0.01) > 0.0);
    const at::Tensor x = numbers(1'000'000);
    CHECK(at::equal(far.call<at::Tensor>("scale", x, 2.0), at::mul(x, 2.0)));
    NamedTensors(far).push("other", x);
    CHECK(at::equal(NamedTensors(far).pull("other").tensor(), x));
    CHECK(far.statistics().retries == 0);
}

std::vector<HttpPeer> ask_for_big(const ExampleDaemon& server, const HeaderList& headers) {
    std::vector<HttpPeer> readers;
    for (int i = 0; i < kClients; ++i)
        readers.emplace_back(server.daemon.port()).request("GET", "/tensors/big.raw", {}, headers);
    // What is there is the beginning of an answer: the rest has no room between here and there.
    REQUIRE(eventually([&] {
        return std::all_of(readers.begin(), readers.end(), [](const HttpPeer& reader) { return reader.readable(); });
    }));
    return readers;
}

std::string head_of_put(int port, const std::string& target, std::int64_t bytes, const HeaderList& more = {}) {
    std::string head = "PUT /tensors/" + target + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                       "\r\nShared-Tensor-Dtype: int32\r\nShared-Tensor-Shape: [" + std::to_string(kBigCount) +
                       "]\r\nContent-Length: " + std::to_string(bytes) + "\r\n";
    for (const auto& [name, value] : more)
        head += name + ": " + value + "\r\n";
    return head + "\r\n";
}

}  // namespace

TEST_CASE("readers that read nothing hold no worker and no copy of what they asked for", "[client][slow]") {
    const Words workers = GENERATE(Words{}, Words{"--workers", "1"});
    const HeaderList headers = GENERATE(HeaderList{}, HeaderList{{"Accept-Encoding", "zstd"}});
    INFO((workers.empty() ? "workers by default" : "one worker") << (headers.empty() ? "" : ", compressed"));
    ExampleDaemon server(with(workers, {"--write-timeout", "600s"}));
    NamedTensors(server.client()).put("big", numbers(kBigCount));
    check_that_it_serves(server);
    CHECK(at::equal(NamedTensors(server.far()).pull("big").tensor(), numbers(kBigCount)));
    const std::int64_t before = kilobytes(server, "VmRSS");
    {
        const std::vector<HttpPeer> readers = ask_for_big(server, headers);
        check_that_it_serves(server);
        CHECK(connections(server) > kClients);
        CHECK(eventually([&] { return server.totals()["workers"]["busy"] == 0; }));
        const std::int64_t grown = kilobytes(server, "VmRSS") - before;
        INFO(grown << " KiB more");
        CHECK(grown < kClients * 4 * 1024);
    }
    CHECK(eventually([&] { return connections(server) == 1; }));
}

TEST_CASE("readers that read nothing are given up", "[client][slow]") {
    const HeaderList headers = GENERATE(HeaderList{}, HeaderList{{"Accept-Encoding", "zstd"}});
    const ExampleDaemon server({"--write-timeout", "1s"});
    NamedTensors(server.client()).put("big", numbers(kBigCount));
    std::vector<HttpPeer> readers = ask_for_big(server, headers);
    CHECK(eventually([&] { return connections(server) == 1; }));
    const auto read_all = [](HttpPeer& reader) {
        if (reader.read_head().header("Transfer-Encoding").empty()) {
            reader.read_bytes(kBigBytes);
        } else {
            while (!reader.read_chunk().empty()) {
            }
        }
    };
    for (HttpPeer& reader : readers)
        CHECK_THROWS_WITH(read_all(reader), StartsWith("the connection ended"));
    check_that_it_serves(server);
}

TEST_CASE("writers that write nothing hold no worker and no memory for what they announced", "[client][slow]") {
    const Words workers = GENERATE(Words{}, Words{"--workers", "1"});
    INFO((workers.empty() ? "workers by default" : "one worker"));
    constexpr std::int64_t kSpare = 16 << 20, kHeld = kClients * kBigBytes;
    ExampleDaemon server(
        with(workers, {"--body-timeout", "600s", "--max-bytes-in-flight", std::to_string(kHeld + kSpare)}));
    const int port = server.daemon.port();
    check_that_it_serves(server);
    const std::int64_t mapped = mapped_for_big(server);
    const auto all_are_held = [&] { return mapped_for_big(server) - mapped >= kHeld; };
    // A second time: what the first ones held is free again.
    for (int round = 0; round < 2; ++round) {
        const std::int64_t before = kilobytes(server, "VmRSS");
        std::vector<HttpPeer> writers;
        for (int i = 0; i < kClients; ++i) {
            writers.emplace_back(port).send(head_of_put(port, "slow" + std::to_string(i) + ".raw", kBigBytes) +
                                            "0123456789");
        }
        REQUIRE(eventually(all_are_held));
        check_that_it_serves(server);
        CHECK(connections(server) > kClients);
        CHECK(eventually([&] { return server.totals()["workers"]["busy"] == 0; }));
        HttpPeer more(port);
        more.send(head_of_put(port, "more.raw", kBigBytes));
        CHECK(more.read().status == 503);
        for (const HttpPeer& writer : writers)
            CHECK_FALSE(writer.readable());
        const std::int64_t grown = kilobytes(server, "VmRSS") - before;
        INFO(grown << " KiB more");
        CHECK(grown < kClients * 4 * 1024);
        writers.clear();
        more.close();
        CHECK(eventually([&] { return connections(server) == 1; }));
        CHECK(server.totals()["uploads"] == Json({{"open", 0}, {"bytes", 0}}));
        // They stay for some seconds.
        REQUIRE(eventually([&] { return !all_are_held(); }));
    }
}

TEST_CASE("writers that stop in the middle are given up, and so is what they brought", "[client][slow]") {
    const bool in_parts = GENERATE(true, false);
    const int clients = in_parts ? 10 : kClients;  // the first part takes memory for the whole
    INFO((in_parts ? "after a part" : "in the whole"));
    const ExampleDaemon server({"--body-timeout", "1s", "--upload-ttl", "1s", "--max-uploads",
                                std::to_string(2 * clients), "--max-upload-bytes", std::to_string(clients * kBigBytes),
                                "--max-bytes-in-flight", std::to_string((clients + 1) * kBigBytes)});
    const int port = server.daemon.port();
    const std::string size = std::to_string(kBigBytes), last = std::to_string(kBigBytes - 1);
    // A second time: the bounds are as wide as they were.
    for (int round = 0; round < 2; ++round) {
        std::vector<HttpPeer> writers;
        for (int i = 0; i < clients; ++i) {
            const std::string target = "slow" + std::to_string(i) + ".raw";
            HttpPeer& writer = writers.emplace_back(port);
            if (in_parts) {
                writer.send(head_of_put(port, target, 10, {{"Content-Range", "bytes 0-9/" + size}}) + "0123456789");
                CHECK(writer.read().status == 202);
                writer.send(
                    head_of_put(port, target, kBigBytes - 10, {{"Content-Range", "bytes 10-" + last + "/" + size}}) +
                    "0123456789");
            } else {
                writer.send(head_of_put(port, target, kBigBytes) + "0123456789");
            }
        }
        for (HttpPeer& writer : writers) {
            CHECK(writer.read().status == 408);
            CHECK(writer.closed_by_peer());
        }
        CHECK(eventually([&] { return server.totals()["uploads"] == Json({{"open", 0}, {"bytes", 0}}); }));
        writers.clear();
        CHECK(eventually([&] { return connections(server) == 1; }));
    }
    check_that_it_serves(server);
    CHECK(call_code(port, "tensor.get", {{"name", "slow0"}}) == -32005);
}
