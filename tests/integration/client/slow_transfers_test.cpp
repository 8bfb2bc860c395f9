// Clients that ask for a large file and do not read it, or announce one and do not send it.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sstream>

#include "integration/client/transfers.hpp"
#include "support/process.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::StartsWith;

namespace {

constexpr int kClients = 40;
constexpr std::uint64_t kBigCount = 16 << 20, kBigBytes = 4 * kBigCount, kMost = kClients * (std::uint64_t{4} << 20);
const Json kNoUploads{{"open", 0}, {"bytes", 0}};

/// A daemon that serves a big file, and clients that are slow.
struct SlowClients {
    explicit SlowClients(const Words& options) : server(options) {
        NamedTensors(server.client()).put("big", numbers(kBigCount));
        check_that_it_serves();
    }

    /// What takes a worker, what takes none, and files in both directions.
    void check_that_it_serves() const {
        const Client near = server.client(), far = server.far();
        CHECK(near.call<double>("add", 1, 2) == 3.0);
        CHECK(near.call<double>("sleep", 0.01) > 0.0);
        CHECK(identical(far.call<TensorRef>("scale", ramp(1'000'000), 2.0), ramp(1'000'000, 2)));
        NamedTensors(far).push("other", numbers(1'000'000));
        CHECK(identical(NamedTensors(far).pull("other").tensor(), numbers(1'000'000)));
        CHECK(far.statistics().retries == 0);
    }
    /// It serves while they hold connections, without a worker or memory for each.
    void check_that_it_serves_beside(std::uint64_t resident_before) {
        check_that_it_serves();
        CHECK(connections() > kClients);
        CHECK(eventually([&] { return server.totals()["workers"]["busy"] == 0; }));
        const std::uint64_t now = resident_bytes(pid());
        INFO(now << " bytes after " << resident_before);
        CHECK(now < resident_before + kMost);
    }
    bool all_connections_end() const {
        return eventually([&] { return connections() == 1; });
    }
    /// That of the question is one of them.
    int connections() const { return server.totals()["connections"]; }
    pid_t pid() { return server.daemon.child().pid(); }

    std::vector<HttpPeer> ask_for_big(const HeaderList& headers) const {
        std::vector<HttpPeer> readers;
        for (int i = 0; i < kClients; ++i)
            readers.emplace_back(server.daemon.port()).request("GET", "/tensors/big.raw", {}, headers);
        // What is there is the beginning of an answer: the rest has no room between here and there.
        const auto readable = [](const HttpPeer& reader) { return reader.readable(); };
        REQUIRE(eventually([&] { return std::all_of(readers.begin(), readers.end(), readable); }));
        return readers;
    }
    /// Announces a file, or a part of one, and sends ten bytes.
    HttpPeer begin_put(const std::string& name, std::uint64_t bytes, const std::string& range = "") const {
        HttpPeer writer(server.daemon.port());
        writer.send("PUT /tensors/" + name +
                    ".raw HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.daemon.port()) +
                    "\r\nShared-Tensor-Dtype: int32\r\nShared-Tensor-Shape: [" + std::to_string(kBigCount) + "]\r\n" +
                    (range.empty() ? "" : "Content-Range: bytes " + range + "/" + std::to_string(kBigBytes) + "\r\n") +
                    "Content-Length: " + std::to_string(bytes) + "\r\n\r\n0123456789");
        return writer;
    }
    /// What lies in mappings that could hold a whole big file: buffers for bodies, whether they are written to or not.
    std::uint64_t mapped_for_big() {
        std::istringstream maps(text_of_file("/proc/" + std::to_string(pid()) + "/maps"));
        std::uint64_t bytes = 0;
        for (std::string line; std::getline(maps, line);) {
            std::istringstream words(line);
            std::uint64_t first = 0, end = 0, inode = 0;
            char dash = 0;
            std::string access, offset, device;
            words >> std::hex >> first >> dash >> end >> access >> offset >> device >> std::dec >> inode;
            if (access == "rw-p" && inode == 0 && end - first >= kBigBytes) bytes += end - first;
        }
        return bytes;
    }

    ExampleDaemon server;
};

}  // namespace

TEST_CASE("readers that read nothing hold no worker and no copy of what they asked for", "[client][slow]") {
    const Words workers = GENERATE(Words{}, Words{"--workers", "1"});
    const HeaderList headers = GENERATE(HeaderList{}, HeaderList{{"Accept-Encoding", "zstd"}});
    INFO((workers.empty() ? "workers by default" : "one worker") << (headers.empty() ? "" : ", compressed"));
    SlowClients slow(joined(workers, {"--write-timeout", "600s"}));
    CHECK(identical(NamedTensors(slow.server.far()).pull("big").tensor(), numbers(kBigCount)));
    const std::uint64_t before = resident_bytes(slow.pid());
    {
        const std::vector<HttpPeer> readers = slow.ask_for_big(headers);
        slow.check_that_it_serves_beside(before);
    }
    CHECK(slow.all_connections_end());
}

TEST_CASE("readers that read nothing are given up", "[client][slow]") {
    const HeaderList headers = GENERATE(HeaderList{}, HeaderList{{"Accept-Encoding", "zstd"}});
    const SlowClients slow({"--write-timeout", "2s"});
    std::vector<HttpPeer> readers = slow.ask_for_big(headers);
    CHECK(slow.all_connections_end());
    for (HttpPeer& reader : readers)
        CHECK_THROWS_WITH(reader.read(), StartsWith("the connection ended"));
    slow.check_that_it_serves();
}

TEST_CASE("writers that write nothing hold no worker and no memory for what they announced", "[client][slow]") {
    const Words workers = GENERATE(Words{}, Words{"--workers", "1"});
    INFO((workers.empty() ? "workers by default" : "one worker"));
    constexpr std::uint64_t kSpare = 16 << 20, kHeld = kClients * kBigBytes;
    SlowClients slow(
        joined(workers, {"--body-timeout", "600s", "--max-bytes-in-flight", std::to_string(kHeld + kSpare)}));
    const std::uint64_t mapped = slow.mapped_for_big();
    const auto all_are_held = [&] { return slow.mapped_for_big() >= mapped + kHeld; };
    // A second time: what the first ones held is free again.
    for (int round = 0; round < 2; ++round) {
        const std::uint64_t before = resident_bytes(slow.pid());
        std::vector<HttpPeer> writers;
        for (int i = 0; i < kClients; ++i)
            writers.push_back(slow.begin_put("slow" + std::to_string(i), kBigBytes));
        REQUIRE(eventually(all_are_held));
        HttpPeer more = slow.begin_put("more", kBigBytes);
        CHECK(more.read().status == 503);
        slow.check_that_it_serves_beside(before);
        for (const HttpPeer& writer : writers)
            CHECK_FALSE(writer.readable());
        writers.clear();
        more.close();
        CHECK(slow.all_connections_end());
        CHECK(slow.server.totals()["uploads"] == kNoUploads);
        // They stay for some seconds.
        REQUIRE(eventually([&] { return !all_are_held(); }));
    }
}

TEST_CASE("writers that stop in the middle are given up, and so is what they brought", "[client][slow]") {
    const bool in_parts = GENERATE(true, false);
    const int clients = in_parts ? 10 : kClients;  // the first part takes memory for the whole
    INFO((in_parts ? "after a part" : "in the whole"));
    const SlowClients slow({"--body-timeout", "1500ms", "--upload-ttl", "1500ms", "--max-uploads",
                            std::to_string(2 * clients), "--max-upload-bytes", std::to_string(clients * kBigBytes),
                            "--max-bytes-in-flight", std::to_string((clients + 1) * kBigBytes)});
    // A second time: the bounds are as wide as they were.
    for (int round = 0; round < 2; ++round) {
        std::vector<HttpPeer> writers;
        for (int i = 0; i < clients; ++i) {
            const std::string name = "slow" + std::to_string(i);
            if (in_parts) {
                CHECK(slow.begin_put(name, 10, "0-9").read().status == 202);
                writers.push_back(slow.begin_put(name, kBigBytes - 10, "10-" + std::to_string(kBigBytes - 1)));
            } else {
                writers.push_back(slow.begin_put(name, kBigBytes));
            }
        }
        for (HttpPeer& writer : writers) {
            CHECK(writer.read().status == 408);
            CHECK(writer.closed_by_peer());
        }
        CHECK(eventually([&] { return slow.server.totals()["uploads"] == kNoUploads; }));
        writers.clear();
        CHECK(slow.all_connections_end());
    }
    slow.check_that_it_serves();
    CHECK(call_code(slow.server.daemon.port(), "tensor.get", {{"name", "slow0"}}) == -32005);
}
