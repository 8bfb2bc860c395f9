// PUT of /tensors/...: files that are published under a name, whole or in parts, over a plain socket.

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "integration/memory/raw_channel.hpp"
#include "integration/server/shared_daemon.hpp"
#include "net/message/fields.hpp"

using namespace shared_tensor::test;

namespace {

HttpReply send(int port, const std::string& method, const std::string& target, const std::string& body = {},
               const HeaderList& headers = {}) {
    HttpPeer peer(port);
    peer.request(method, "/tensors/" + target, body, headers);
    return peer.read(method != "HEAD");
}

std::string numbers(std::size_t count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 0.0F);
    return {reinterpret_cast<const char*>(values.data()), count * sizeof(float)};
}

Json error_of(const HttpReply& reply) { return Json::parse(reply.body)["error"]; }

HeaderList floats(std::size_t rows, const HeaderList& more = {}) {
    HeaderList headers{{"Shared-Tensor-Dtype", "float32"}, {"Shared-Tensor-Shape", "[" + std::to_string(rows) + ",4]"}};
    headers.insert(headers.end(), more.begin(), more.end());
    return headers;
}

std::string digest_of(const std::string& bytes) {
    return shared_tensor::net::digest_field(shared_tensor::Digest::of(std::as_bytes(std::span(bytes))));
}

/// A file of rows x 4 numbers, sent in parts to a name of its own.
struct Parts {
    explicit Parts(int to_port, std::size_t row_count = 1000, std::string upload = "a")
        : port(to_port), rows(row_count), bytes(numbers(rows * 4)), id(std::move(upload)) {}

    HttpReply put(std::size_t first, std::size_t count, const HeaderList& more = {}) const {
        return put(first, bytes.substr(first, count), more);
    }
    HttpReply put(std::size_t first, const std::string& part, const HeaderList& more = {}) const {
        HeaderList headers = floats(rows, more);
        headers.emplace_back("Content-Range", "bytes " + std::to_string(first) + "-" +
                                                  std::to_string(first + part.size() - 1) + "/" +
                                                  std::to_string(bytes.size()));
        return send(port, "PUT", name + ".raw?upload=" + id, part, headers);
    }
    HttpReply state() const { return send(port, "HEAD", name + "?upload=" + id); }
    bool is_published() const { return send(port, "HEAD", name).status == 200; }
    std::string published() const { return send(port, "GET", name + ".raw").body; }

    const int port;
    const std::size_t rows;
    const std::string bytes, id;
    const std::string name = fresh_name();
};

Json uploads_of(int port) { return call(port, "server.info")["totals"]["uploads"]; }

}  // namespace

TEST_CASE("a file is put whole, in each form", "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name(), bytes = numbers(400);
    const HttpReply first = send(port, "PUT", name + ".raw", bytes, floats(100));
    CHECK(first.status == 201);
    const int version = Json::parse(first.body)["version"];
    CHECK(Json::parse(first.body) == Json({{"name", name}, {"version", version}, {"bytes", 1600}}));
    CHECK(send(port, "GET", name + ".raw").body == bytes);
    CHECK(send(port, "GET", name + ".raw").header("Shared-Tensor-Shape") == "[100,4]");
    for (const char* suffix : {".npy", ".safetensors", ".raw"}) {
        const HttpReply file = send(port, "GET", name + suffix);
        const std::string other = fresh_name();
        // What is got in a form can be put in it; by its type too.
        CHECK(send(port, "PUT", name + suffix, file.body, floats(100)).status == 200);
        CHECK(send(port, "GET", name + suffix).body == file.body);
        HeaderList headers = floats(100, {{"Content-Type", file.header("Content-Type")}});
        CHECK(send(port, "PUT", other, file.body, headers).status == 201);
        CHECK((suffix == std::string(".safetensors") ? send(port, "GET", other + "/" + name + ".raw").body
                                                     : send(port, "GET", other + ".raw").body) == bytes);
    }
    CHECK(call(port, "tensor.get", {{"name", name}})["version"] == version + 3);
    CHECK(uploads_of(port) == Json({{"open", 0}, {"bytes", 0}}));
}

TEST_CASE("a set is put as safetensors, with its metadata", "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name(), copy = fresh_name();
    call(port, "tensor.put",
         {{"name", name},
          {"tensors", {{"a", {{"$tensor", {{"data", {1, 2, 3}}}}}}, {"b.c", {{"$tensor", {{"data", {0.5}}}}}}}},
          {"metadata", {{"step", "7"}}}});
    const std::string file = send(port, "GET", name).body;
    CHECK(send(port, "PUT", copy + ".safetensors", file).status == 201);
    CHECK(send(port, "GET", copy).body == file);
    CHECK(call(port, "tensor.get", {{"name", copy}})["metadata"] == Json({{"step", "7"}}));
}

TEST_CASE("members that lie askew in their file are put right", "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const std::string json =  // its length is odd: so is every place behind it
        R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[1,9]},"y":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    std::string file(8, '\0');
    const std::uint64_t size = json.size();
    std::memcpy(file.data(), &size, 8);
    file += json + "\x07" + numbers(2);
    CHECK(send(port, "PUT", name + ".safetensors", file).status == 201);
    CHECK(send(port, "GET", name + "/x.raw").body == numbers(2));
    CHECK(send(port, "GET", name + "/y.raw").body == "\x07");
}

TEST_CASE("parts may come in any order, again, and over each other", "[server][uploads]") {
    const Parts parts(shared_daemon());
    const std::size_t size = parts.bytes.size();
    const HttpReply last = parts.put(size - 100, 100);
    CHECK(last.status == 202);
    CHECK(Json::parse(last.body) ==
          Json({{"name", parts.name}, {"size", size}, {"received", 100}, {"missing", Json::array({{0, size - 101}})}}));
    CHECK(parts.put(0, 1000).status == 202);
    CHECK(parts.put(500, 2000).status == 202);  // over the one before
    CHECK(parts.put(0, 1000).status == 202);    // again
    CHECK_FALSE(parts.is_published());
    const HttpReply state = parts.state();
    CHECK(state.status == 200);
    CHECK(state.header("Shared-Tensor-Upload") == "2600/" + std::to_string(size));
    CHECK(state.header("Shared-Tensor-Missing") == "2500-" + std::to_string(size - 101));
    const HttpReply done = parts.put(2400, size - 2400);
    CHECK(done.status == 201);
    const std::string version = send(parts.port, "HEAD", parts.name).header("Shared-Tensor-Version");
    CHECK(Json::parse(done.body)["version"].dump() == version);
    CHECK(parts.published() == parts.bytes);
    // Its answer may have been lost: the part comes again.
    CHECK(Json::parse(parts.put(2400, size - 2400).body) == Json::parse(done.body));
    CHECK(parts.state().header("Shared-Tensor-Version") == version);
    CHECK(uploads_of(parts.port) == Json({{"open", 0}, {"bytes", 0}}));
}

TEST_CASE("parts of every order and size make the same file", "[server][uploads]") {
    std::mt19937 random(11);  // NOLINT(cert-msc*): the same in every run
    for (const std::size_t piece : {1UL, 7UL, 999UL, 5000UL}) {
        const Parts parts(shared_daemon(), piece == 1 ? 10 : 500);
        std::vector<std::size_t> firsts;
        for (std::size_t at = 0; at < parts.bytes.size(); at += piece)
            firsts.push_back(at);
        std::shuffle(firsts.begin(), firsts.end(), random);
        for (std::size_t i = 0; i < firsts.size(); ++i)
            REQUIRE(parts.put(firsts[i], piece).status == (i + 1 < firsts.size() ? 202 : 201));
        CHECK(parts.published() == parts.bytes);
    }
}

TEST_CASE("parts may come at once, repeated by several senders", "[server][uploads]") {
    const Parts parts(shared_daemon(), 100'000);
    const auto published = [&] {
        return call(parts.port, "server.info")["totals"]["named_tensors"]["published"].get<int>();
    };
    const int before = published();
    constexpr std::size_t kPiece = 30'000;
    std::atomic<int> done{0}, rejected{0};
    {
        std::vector<std::jthread> senders;
        for (unsigned seed = 0; seed < 6; ++seed) {
            senders.emplace_back([&, seed] {
                std::vector<std::size_t> firsts;
                for (std::size_t at = 0; at < parts.bytes.size(); at += kPiece)
                    firsts.push_back(at);
                std::shuffle(firsts.begin(), firsts.end(), std::mt19937(seed));  // NOLINT(cert-msc*)
                for (const std::size_t first : firsts) {
                    const int status = parts.put(first, kPiece).status;
                    if (status == 200 || status == 201) ++done;
                    if (status > 202) ++rejected;
                }
            });
        }
    }
    CHECK(done >= 1);
    CHECK(rejected == 0);
    CHECK(parts.published() == parts.bytes);
    CHECK(published() == before + 1);
}

TEST_CASE("a part that was damaged on the way is rejected, and may come again", "[server][uploads]") {
    const Parts parts(shared_daemon());
    const std::size_t size = parts.bytes.size(), half = size / 2;
    const std::string right = parts.bytes.substr(0, half);
    std::string wrong = right;
    wrong[77] ^= 1;
    const HttpReply rejected = parts.put(0, wrong, {{"Content-Digest", digest_of(right)}});
    CHECK(rejected.status == 400);
    CHECK(error_of(rejected)["data"]["parameter"] == "Content-Digest");
    CHECK(parts.state().status == 404);
    CHECK(parts.put(0, right, {{"Content-Digest", digest_of(right)}}).status == 202);
    CHECK(parts.put(half, half).status == 201);
    CHECK(parts.published() == parts.bytes);
    CHECK(send(parts.port, "PUT", parts.name + ".raw", wrong, {{"Content-Digest", "xxh3-128=nonsense"}}).status == 400);
}

TEST_CASE("what cannot be an upload is rejected, and says why", "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name(), bytes = numbers(8);
    const auto parameter = [&](const HttpReply& reply, int status) -> std::string {
        CHECK(reply.status == status);
        return error_of(reply)["data"]["parameter"];
    };
    const auto range = [&](const std::string& field) {
        return send(port, "PUT", name + ".raw?upload=x", bytes, floats(2, {{"Content-Range", field}}));
    };
    CHECK(parameter(send(port, "PUT", name + ".raw?upload=x", {},
                         floats(2, {{"Content-Range", "bytes */32"}, {"Content-Length", "0"}})),
                    400) == "Content-Range");
    for (const char* wrong : {"bytes 0-31/*", "bytes 0-30/32", "bytes 0-32/64", "bytes 8-39/32", "bytes */32",
                              "0-31/32", "bytes 0-31/99999999999999999999"})
        CHECK(parameter(range(wrong), 400) == "Content-Range");
    const HttpReply too_large = range("bytes 0-31/9000000000000000000");  // more than may stand under names
    CHECK(too_large.status == 507);
    CHECK(error_of(too_large)["code"] == -32008);
    CHECK(send(port, "PUT", name + ".raw").status == 411);
    CHECK(parameter(send(port, "PUT", name, bytes), 415) == "Content-Type");
    CHECK(parameter(send(port, "PUT", name + ".raw", bytes), 400) == "Shared-Tensor-Dtype");
    CHECK(parameter(send(port, "PUT", name + ".raw", bytes, {{"Shared-Tensor-Dtype", "float33"}}), 400) ==
          "Shared-Tensor-Dtype");
    for (const char* shape : {"", "8", "[8", "[-8]", "[8.0]", "{}", "[\"8\"]"})
        CHECK(parameter(send(port, "PUT", name + ".raw", bytes,
                             {{"Shared-Tensor-Dtype", "float32"}, {"Shared-Tensor-Shape", shape}}),
                        400) == "Shared-Tensor-Shape");
    for (const char* shape : {"[7]", "[9]", "[4611686018427387904,4]", "[4611686018427387904,4611686018427387904]"})
        CHECK(parameter(send(port, "PUT", name + ".raw", bytes,
                             {{"Shared-Tensor-Dtype", "float32"}, {"Shared-Tensor-Shape", shape}}),
                        400) == "shape");
    CHECK(parameter(send(port, "PUT", name + ".raw", "\2\1",
                         {{"Shared-Tensor-Dtype", "bool"}, {"Shared-Tensor-Shape", "[2]"}}),
                    400) == "body");
    CHECK(parameter(send(port, "PUT", name + ".npy", bytes), 400) == "body");
    CHECK(parameter(send(port, "PUT", name + ".safetensors", bytes), 400) == "body");
    CHECK(parameter(send(port, "PUT", name + ".safetensors", {}, {{"Content-Length", "0"}}), 400) == "body");
    CHECK(parameter(send(port, "PUT", name + "/member.raw", bytes, floats(2)), 400) == "name");
    CHECK(parameter(send(port, "PUT", "l-name.raw", bytes, floats(2)), 400) == "name");
    CHECK(parameter(send(port, "PUT", ".raw", bytes, floats(2)), 400) == "name");
    CHECK(parameter(send(port, "PUT", name + ".raw?slice=1:2", bytes, floats(2)), 400) == "slice");
    CHECK(parameter(send(port, "PUT", name + ".raw?if_version=x", bytes, floats(2)), 400) == "if_version");
    CHECK(parameter(send(port, "PUT", name + ".raw?upload=" + std::string(129, 'x'), bytes, floats(2)), 400) ==
          "upload");
    CHECK(send(port, "HEAD", name).status == 404);
    CHECK(uploads_of(port) == Json({{"open", 0}, {"bytes", 0}}));
}

TEST_CASE("an upload has one form and size; another id is another upload", "[server][uploads]") {
    const Parts parts(shared_daemon());
    CHECK(parts.put(0, 100).status == 202);
    const HttpReply other_shape = send(
        parts.port, "PUT", parts.name + ".raw?upload=a", std::string(4, '\0'),
        {{"Shared-Tensor-Dtype", "float32"}, {"Shared-Tensor-Shape", "[4000]"}, {"Content-Range", "bytes 0-3/16000"}});
    CHECK(other_shape.status == 409);
    CHECK(error_of(other_shape)["data"]["expected"].get<std::string>().find("16000 bytes") != std::string::npos);
    CHECK(send(parts.port, "PUT", parts.name + ".raw?upload=b", std::string(16, '\0'),
               floats(1, {{"Content-Range", "bytes 0-15/16"}}))
              .status == 201);
    CHECK(parts.published() == std::string(16, '\0'));
    CHECK(parts.put(100, parts.bytes.size() - 100).status == 200);
    CHECK(parts.published() == parts.bytes);
}

TEST_CASE("an upload can be given up", "[server][uploads]") {
    const Daemon daemon;
    const Parts parts(daemon.port());
    CHECK(parts.put(0, 1000).status == 202);
    CHECK(uploads_of(daemon.port()) == Json({{"open", 1}, {"bytes", 16'000}}));
    CHECK(send(daemon.port(), "DELETE", parts.name + "?upload=b").status == 404);
    CHECK(send(daemon.port(), "DELETE", parts.name + "?upload=a").status == 204);
    CHECK(send(daemon.port(), "DELETE", parts.name + "?upload=a").status == 404);
    CHECK(uploads_of(daemon.port()) == Json({{"open", 0}, {"bytes", 0}}));
}

TEST_CASE("an upload ends by itself without parts, and so does what is known of one that is done",
          "[server][uploads]") {
    const Daemon daemon({"--upload-ttl", "300ms"});
    const Parts parts(daemon.port());
    CHECK(parts.put(0, 1000).status == 202);
    CHECK(eventually([&] { return uploads_of(daemon.port()) == Json({{"open", 0}, {"bytes", 0}}); }));
    CHECK(parts.state().status == 404);
    CHECK(parts.put(0, parts.bytes.size()).status == 201);  // begun anew
    CHECK(eventually([&] { return parts.state().status == 404; }));
    CHECK(parts.published() == parts.bytes);
}

TEST_CASE("first parts at once are one upload, and no more than its size is counted", "[server][uploads]") {
    const Daemon daemon({"--max-upload-bytes", "16000000"});
    const Parts parts(daemon.port(), 1'000'000);  // all that may be
    constexpr std::size_t kPiece = 1'000'000;
    std::atomic<int> done{0}, taken{0}, others{0};
    {
        std::vector<std::jthread> senders;
        for (std::size_t first = 0; first < parts.bytes.size(); first += kPiece) {
            senders.emplace_back([&, first] {
                const int status = parts.put(first, kPiece).status;
                ++(status == 201 ? done : status == 202 ? taken : others);
            });
        }
    }
    CHECK(done == 1);
    CHECK(taken == 15);
    CHECK(others == 0);
    CHECK(parts.published() == parts.bytes);
}

TEST_CASE("the last part may come again whatever its condition, and another file under its id is another upload",
          "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name(), bytes = numbers(8);
    const auto put = [&](const std::string& body, const HeaderList& headers) {
        return send(port, "PUT", name + ".raw?upload=u&if_version=0", body, headers);
    };
    const HttpReply first = put(bytes, floats(2));
    CHECK(first.status == 201);
    const HttpReply again = put(bytes, floats(2));
    CHECK(again.status == 200);
    CHECK(Json::parse(again.body) == Json::parse(first.body));
    CHECK(put(bytes, {{"Shared-Tensor-Dtype", "float32"}, {"Shared-Tensor-Shape", "[8]"}}).status == 412);
    const HttpReply other = send(port, "PUT", name + ".raw?upload=u", bytes,
                                 {{"Shared-Tensor-Dtype", "float32"}, {"Shared-Tensor-Shape", "[8]"}});
    CHECK(other.status == 200);
    CHECK(Json::parse(other.body)["version"] > Json::parse(first.body)["version"]);
}

TEST_CASE("conditions of HTTP hold, or are rejected", "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name(), bytes = numbers(8);
    const auto put = [&](const HeaderList& headers) {
        return send(port, "PUT", name + ".raw", bytes, floats(2, headers)).status;
    };
    CHECK(put({{"If-Match", "\"x\""}}) == 400);
    CHECK(put({{"If-None-Match", "*"}}) == 201);
    CHECK(put({{"If-None-Match", "*"}}) == 412);
    CHECK(put({{"If-None-Match", "\"x\""}}) == 400);
    CHECK(put({{"Content-Encoding", "br"}}) == 415);
    CHECK(put({{"Content-Encoding", "identity"}}) == 200);
}

TEST_CASE("what a head tells is rejected before the body is sent", "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const auto answer = [&](const std::string& target, const std::string& headers) {
        HttpPeer peer(port);
        peer.send("PUT /tensors/" + target + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                  "\r\nExpect: 100-continue\r\n" + headers + "\r\n");
        return peer.read().status;
    };
    CHECK(answer(name, "Content-Length: 1000000000\r\n") == 415);
    CHECK(answer("l-x.npy", "Content-Length: 1000000000\r\n") == 400);
    CHECK(answer(name + ".npy?if_version=77", "Content-Length: 1000000000\r\n") == 412);
    CHECK(answer(name + ".npy", "Content-Length: 1000\r\nContent-Range: bytes 0-9/20\r\n") == 400);
    CHECK(answer(name + ".npy", "Content-Length: 1000000\r\nContent-Range: bytes 0-999999/9000000000000000000\r\n") ==
          507);
    CHECK(answer(name + ".npy", "Content-Length: 1000\r\n") == 100);
}

TEST_CASE("all of a file counts, and it ends with its elements", "[server][uploads]") {
    const Daemon daemon({"--max-named-bytes", "10000"});
    const int port = daemon.port();
    CHECK(send(port, "PUT", "x.raw", numbers(4), floats(1)).status == 201);
    const std::string npy = send(port, "GET", "x.npy").body;
    const HttpReply longer = send(port, "PUT", "y.npy", npy + std::string(1000, '\0'));
    CHECK(longer.status == 400);
    CHECK(error_of(longer)["data"]["got"].get<std::string>().find("1000 bytes") != std::string::npos);
    const auto safetensors = [](const std::string& note) {
        const Json header{{"__metadata__", {{"note", note}}},
                          {"a", {{"dtype", "U8"}, {"shape", {1}}, {"data_offsets", {0, 1}}}}};
        const std::string json = header.dump();
        std::string file(8, '\0');
        const std::uint64_t size = json.size();
        std::memcpy(file.data(), &size, 8);
        return file + json + "\x07";
    };
    CHECK(send(port, "PUT", "s.safetensors", safetensors(std::string(6000, 'x'))).status == 201);
    const auto bytes = call(port, "server.info")["totals"]["named_tensors"]["bytes"].get<int>();
    CHECK(bytes > 6000);
    CHECK(send(port, "PUT", "t.safetensors", safetensors(std::string(6000, 'x'))).status == 507);
    const HttpReply notes = send(shared_daemon(), "PUT", "s.safetensors", safetensors(std::string(70'000, 'x')));
    CHECK(notes.status == 400);
    CHECK(error_of(notes)["data"]["expected"] == "shorter metadata");
}

TEST_CASE("a method that a file or an upload does not take gets the methods that it takes", "[server][uploads]") {
    const HttpReply file = send(shared_daemon(), "POST", "x.raw", "");
    CHECK(file.status == 405);
    CHECK(file.header("Allow") == "GET, HEAD, PUT");
    const HttpReply upload = send(shared_daemon(), "POST", "x.raw?upload=1", "");
    CHECK(upload.status == 405);
    CHECK(upload.header("Allow") == "GET, HEAD, PUT, DELETE");
}

TEST_CASE("uploads are bounded, in bytes and number", "[server][uploads]") {
    const Daemon daemon({"--max-upload-bytes", "20000", "--max-uploads", "3"});  // two of one client
    const Parts first(daemon.port()), second(daemon.port()), small(daemon.port(), 10), third(daemon.port(), 10);
    CHECK(first.put(0, 100).status == 202);
    const HttpReply full = second.put(0, 100);
    CHECK(full.status == 503);
    CHECK(full.header("Retry-After") == "1");
    CHECK(error_of(full)["data"]["detail"].get<std::string>().find("--max-upload-bytes") != std::string::npos);
    CHECK(send(daemon.port(), "PUT", second.name + ".raw", second.bytes, floats(1000)).status == 503);
    CHECK(small.put(0, 10).status == 202);
    CHECK(third.put(0, 10).status == 503);
    CHECK(first.put(100, first.bytes.size() - 100).status == 201);
    CHECK(second.put(0, second.bytes.size()).status == 201);
    const Parts large(daemon.port(), 1251);
    const HttpReply never = large.put(0, 100);
    CHECK(never.status == 413);
    CHECK(error_of(never)["data"]["expected"].get<std::string>().find("--max-upload-bytes") != std::string::npos);
}

TEST_CASE("a principal that is no admin puts a part of what all may", "[server][uploads]") {
    TemporaryFolder folder;
    const std::string ann = std::string(32, 'a'), boss = std::string(32, 'b');
    const std::string tokens = folder.write("tokens", "ann:" + ann + "\nboss:" + boss + ":admin\n");
    const auto as = [](const std::string& secret) {
        return std::pair<std::string, std::string>("Authorization", "Bearer " + secret);
    };
    const auto limit = [&](const char* all) {
        const Daemon daemon({"--token-file", tokens, "--max-upload-bytes", all});
        const Parts large(daemon.port(), 626);  // 10,016 bytes
        const HttpReply never = large.put(0, 100, {as(ann)});
        if (never.status != 202) CHECK(large.put(0, 100, {as(boss)}).status == 202);
        return never.status == 413 ? error_of(never)["data"]["expected"].get<std::string>()
                                   : std::to_string(never.status);
    };
    CHECK(limit("20000") == "a file of at most 10000 bytes (half of --max-upload-bytes)");
    CHECK(limit("20040") == "202");
}

TEST_CASE("a file is put in the place of a version only, if that is asked for", "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name(), bytes = numbers(8);
    const auto put = [&](int if_version) {
        return send(port, "PUT", name + ".raw?if_version=" + std::to_string(if_version), bytes, floats(2));
    };
    CHECK(put(1'000'000).status == 412);
    const HttpReply first = put(0);
    CHECK(first.status == 201);
    const HttpReply conflict = put(0);
    CHECK(conflict.status == 412);
    CHECK(error_of(conflict)["data"]["parameter"] == "if_version");
    CHECK(put(Json::parse(first.body)["version"]).status == 200);
}

TEST_CASE("uploads are their principal's only", "[server][uploads]") {
    TemporaryFolder folder;
    const std::string ann = "ann-0123456789abcdef", bob = "bob-0123456789abcdef";
    const Daemon daemon({"--token-file", folder.write("tokens", "ann:" + ann + "\nbob:" + bob + "\n")});
    const auto as = [](const std::string& secret) {
        return std::pair<std::string, std::string>("Authorization", "Bearer " + secret);
    };
    const Parts parts(daemon.port());
    CHECK(parts.put(0, 100).status == 401);
    CHECK(parts.put(0, 100, {as(ann)}).status == 202);
    CHECK(send(daemon.port(), "HEAD", parts.name + "?upload=a", {}, {as(bob)}).status == 404);
    CHECK(send(daemon.port(), "DELETE", parts.name + "?upload=a", {}, {as(bob)}).status == 404);
    CHECK(parts.put(100, parts.bytes.size() - 100, {as(bob)}).status == 202);
    CHECK(parts.put(100, parts.bytes.size() - 100, {as(ann)}).status == 201);
    CHECK(send(daemon.port(), "GET", parts.name + ".raw", {}, {as(ann)}).body == parts.bytes);
    CHECK(send(daemon.port(), "GET", parts.name, {}, {as(bob)}).status == 404);
}

TEST_CASE("what was put lies in shared memory, and is handed over without a copy", "[server][uploads]") {
    const Daemon daemon;  // versions are counted on where a name is removed: other tests look at them
    const Parts parts(daemon.port(), 20'000);
    CHECK(parts.put(0, 1000).status == 202);
    CHECK(parts.put(1000, parts.bytes.size() - 1000).status == 201);
    RawChannel channel(daemon.port());
    const std::string session = channel.open();
    const HttpReply reply = post(daemon.port(), call_object("tensor.get", {{"name", parts.name}}).dump(),
                                 {{"Shared-Tensor-Session", session}, {"Shared-Tensor-Accept", "shm"}});
    CHECK(reply.header("Shared-Tensor-Transport") == "shm;tensors=1;copied=0");
    const auto segments = [&] {
        return call(daemon.port(), "server.info")["totals"]["shared_memory"]["segments"].get<int>();
    };
    CHECK(segments() == 1);
    channel.ask("lease.release", {{"leases", {Json::parse(reply.body)["result"]["tensor"]["$tensor"]["lease"]}}});
    CHECK(call(daemon.port(), "tensor.delete", {{"name", parts.name}}).is_object());
    CHECK(segments() == 0);
}
