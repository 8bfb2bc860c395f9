// PUT of /tensors/...: files that are published under a name, whole or in parts.

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <thread>

#include "file_client.hpp"
#include "integration/memory/raw_channel.hpp"
#include "net/message/fields.hpp"

using namespace shared_tensor::test;

namespace {

std::string digest_of(const std::string& bytes) {
    return shared_tensor::net::digest_field(shared_tensor::Digest::of(std::as_bytes(std::span(bytes))));
}

/// A file of rows x 4 numbers, sent in parts to a name of its own.
struct Parts {
    explicit Parts(int to_port, std::size_t row_count = 1000)
        : port(to_port), rows(row_count), bytes(numbers(rows * 4)) {}

    HttpReply put(std::size_t first, std::size_t count, const HeaderList& more = {}) const {
        return put(first, bytes.substr(first, count), more);
    }
    HttpReply put(std::size_t first, const std::string& part, const HeaderList& more = {}) const {
        const std::string range = "bytes " + std::to_string(first) + "-" + std::to_string(first + part.size() - 1) +
                                  "/" + std::to_string(bytes.size());
        return send(port, "PUT", name + ".raw?upload=a", part, join(floats(rows, more), {{"Content-Range", range}}));
    }
    HttpReply state() const { return send(port, "HEAD", name + "?upload=a"); }
    bool is_published() const { return send(port, "HEAD", name).status == 200; }
    std::string published() const { return get(port, name + ".raw").body; }
    /// Where each part of this size begins, in any order.
    std::vector<std::size_t> shuffled(std::size_t piece, unsigned seed) const {
        std::vector<std::size_t> firsts;
        for (std::size_t at = 0; at < bytes.size(); at += piece)
            firsts.push_back(at);
        std::shuffle(firsts.begin(), firsts.end(), std::mt19937(seed));  // NOLINT(cert-msc*): the same in every run
        return firsts;
    }

    const int port;
    const std::size_t rows;
    const std::string bytes;
    const std::string name = fresh_name();
};

Json uploads_of(int port) { return call(port, "server.info")["totals"]["uploads"]; }
Json uploads(int open, int bytes) { return {{"open", open}, {"bytes", bytes}}; }

}  // namespace

TEST_CASE("a file is put whole, in each form", "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name(), bytes = numbers(400);
    const HttpReply first = send(port, "PUT", name + ".raw", bytes, floats(100));
    CHECK(first.status == 201);
    const int version = Json::parse(first.body)["version"];
    CHECK(Json::parse(first.body) == Json({{"name", name}, {"version", version}, {"bytes", 1600}}));
    CHECK(get(port, name + ".raw").body == bytes);
    CHECK(get(port, name + ".raw").header("Shared-Tensor-Shape") == "[100,4]");
    for (const char* suffix : {".npy", ".safetensors", ".raw"}) {
        const HttpReply file = get(port, name + suffix);
        const std::string other = fresh_name();
        // What is got in a form can be put in it; by its type too.
        CHECK(send(port, "PUT", name + suffix, file.body, floats(100)).status == 200);
        CHECK(get(port, name + suffix).body == file.body);
        const HeaderList headers = floats(100, {{"Content-Type", file.header("Content-Type")}});
        CHECK(send(port, "PUT", other, file.body, headers).status == 201);
        const std::string member = suffix == std::string(".safetensors") ? other + "/" + name : other;
        CHECK(get(port, member + ".raw").body == bytes);
    }
    CHECK(call(port, "tensor.get", {{"name", name}})["version"] == version + 3);
    CHECK(uploads_of(port) == uploads(0, 0));
}

TEST_CASE("a set is put as safetensors, with its metadata and wherever its members lie", "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name(), copy = fresh_name();
    call(port, "tensor.put",
         {{"name", name},
          {"tensors", {{"a", {{"$tensor", {{"data", {1, 2, 3}}}}}}, {"b.c", {{"$tensor", {{"data", {0.5}}}}}}}},
          {"metadata", {{"step", "7"}}}});
    const std::string file = get(port, name).body;
    CHECK(send(port, "PUT", copy + ".safetensors", file).status == 201);
    CHECK(get(port, copy).body == file);
    CHECK(call(port, "tensor.get", {{"name", copy}})["metadata"] == Json({{"step", "7"}}));
    const std::string one =
        safetensors(R"({")" + copy + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "\x07");
    const auto is_set = [&] { return call(port, "tensor.get", {{"name", copy}}).contains("tensors"); };
    CHECK(send(port, "PUT", copy + ".safetensors?as=set", one).status == 200);
    CHECK(is_set());
    CHECK(send(port, "PUT", copy + ".safetensors", one).status == 200);
    CHECK_FALSE(is_set());
    const std::string askew = safetensors(  // the length of the header is odd: so is every place behind it
        R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[1,9]},"y":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
        "\x07" + numbers(2));
    CHECK(send(port, "PUT", copy + ".safetensors", askew).status == 200);
    CHECK(get(port, copy + "/x.raw").body == numbers(2));
    CHECK(get(port, copy + "/y.raw").body == "\x07");
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
    CHECK(uploads_of(parts.port) == uploads(0, 0));
    for (const std::size_t piece : {1UL, 7UL, 999UL, 5000UL}) {
        const Parts others(shared_daemon(), piece == 1 ? 10 : 500);
        const auto firsts = others.shuffled(piece, 11);
        for (std::size_t i = 0; i < firsts.size(); ++i)
            REQUIRE(others.put(firsts[i], piece).status == (i + 1 < firsts.size() ? 202 : 201));
        CHECK(others.published() == others.bytes);
    }
}

TEST_CASE("parts that several senders send at once are one upload, and no more than its size is counted",
          "[server][uploads]") {
    const Daemon daemon({"--max-upload-bytes", "1600000"});
    const Parts parts(daemon.port(), 100'000);  // all that may be
    std::atomic<int> published{0}, rejected{0};
    {
        std::vector<std::jthread> senders;
        for (unsigned seed = 0; seed < 6; ++seed) {
            senders.emplace_back([&, seed] {
                for (const std::size_t first : parts.shuffled(30'000, seed)) {
                    const int status = parts.put(first, 30'000).status;
                    published += status == 201 ? 1 : 0;
                    rejected += status > 202 ? 1 : 0;
                }
            });
        }
    }
    CHECK(published == 1);
    CHECK(rejected == 0);
    CHECK(parts.published() == parts.bytes);
    CHECK(call(daemon.port(), "server.info")["totals"]["named_tensors"]["published"] == 1);
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
}

TEST_CASE("what cannot be an upload is rejected, and says why", "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name(), bytes = numbers(8);
    struct Row {
        const char* parameter;  // that the error names
        std::string target, body;
        HeaderList headers;
        int status = 400;
    };
    std::vector<Row> rows{
        {"Content-Range", name + ".raw?upload=x", "",
         floats(2, {{"Content-Range", "bytes */32"}, {"Content-Length", "0"}})},
        {"Content-Type", name, bytes, {}, 415},
        {"Content-Digest", name + ".raw", bytes, floats(2, {{"Content-Digest", "xxh3-128=nonsense"}})},
        {"Shared-Tensor-Dtype", name + ".raw", bytes, {}},
        {"Shared-Tensor-Dtype", name + ".raw", bytes, {{"Shared-Tensor-Dtype", "float33"}}},
        {"body", name + ".raw", "\2\1", shaped("bool", "[2]")},
        {"body", name + ".npy", bytes, {}},
        {"body", name + ".safetensors", bytes, {}},
        {"body", name + ".safetensors", "", {{"Content-Length", "0"}}},
        {"name", name + "/member.raw", bytes, floats(2)},
        {"name", "l-name.raw", bytes, floats(2)},
        {"name", ".raw", bytes, floats(2)},
        {"slice", name + ".raw?slice=1:2", bytes, floats(2)},
        {"if_version", name + ".raw?if_version=x", bytes, floats(2)},
        {"upload", name + ".raw?upload=" + std::string(129, 'x'), bytes, floats(2)},
        {"as", name + ".safetensors?as=tensor", bytes, {}},
        {"as", name + ".raw?as=set", bytes, floats(2)},
        {"query", name + ".raw?version=1&version=2", bytes, floats(2)},
    };
    for (const char* wrong : {"bytes 0-31/*", "bytes 0-30/32", "bytes 0-32/64", "bytes 8-39/32", "bytes */32",
                              "0-31/32", "bytes 0-31/99999999999999999999"})
        rows.push_back({"Content-Range", name + ".raw?upload=x", bytes, floats(2, {{"Content-Range", wrong}})});
    for (const char* shape : {"", "8", "[8", "[-8]", "[8.0]", "{}", "[\"8\"]", "[7]", "[9]", "[4611686018427387904,4]",
                              "[4611686018427387904,4611686018427387904]"})
        rows.push_back({"Shared-Tensor-Shape", name + ".raw", bytes, shaped("float32", shape)});
    for (const Row& row : rows) {
        CAPTURE(row.target, row.headers);
        const HttpReply reply = send(port, "PUT", row.target, row.body, row.headers);
        CHECK(reply.status == row.status);
        CHECK(error_of(reply)["data"]["parameter"] == row.parameter);
    }
    const HttpReply too_large =  // more than may stand under names
        send(port, "PUT", name + ".npy?upload=x", bytes, {{"Content-Range", "bytes 0-31/9000000000000000000"}});
    CHECK(too_large.status == 507);
    CHECK(error_of(too_large)["code"] == -32008);
    CHECK(send(port, "PUT", name + ".raw").status == 411);
    for (const char* header : {"Shared-Tensor-Shape", "Shared-Tensor-Dtype"}) {
        const HttpReply twice = send(port, "PUT", name + ".raw", bytes, floats(2, {{header, "[8]"}}));
        CHECK(twice.status == 400);
        CHECK(error_of(twice)["data"]["detail"] == std::string(header) + " comes more than once");
    }
    CHECK(send(port, "HEAD", name).status == 404);
    CHECK(uploads_of(port) == uploads(0, 0));
    const HttpReply file = send(port, "PATCH", "x.raw"), upload = send(port, "PATCH", "x.raw?upload=1");
    CHECK(file.status == 405);
    CHECK(file.header("Allow") == "GET, HEAD, POST, PUT");
    CHECK(upload.status == 405);
    CHECK(upload.header("Allow") == "GET, HEAD, POST, PUT, DELETE");
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

TEST_CASE("conditions of HTTP and of a version hold, or are rejected", "[server][uploads]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    struct Row {
        int status;
        HeaderList headers;
        std::string query;
    };
    const Row rows[] = {
        {400, {{"If-Match", "\"x\""}}, ""},
        {400, {{"Idempotency-Key", "k"}}, ""},
        {400, {}, "?version=x"},
        {400, {}, "?version=4503599627370497"},
        {412, {}, "?if_version=1000000"},
        {201, {{"If-None-Match", "*"}}, ""},
        {412, {{"If-None-Match", "*"}}, ""},
        {400, {{"If-None-Match", "\"x\""}}, ""},
        {415, {{"Content-Encoding", "br"}}, ""},
        {200, {{"Content-Encoding", "identity"}}, ""},
    };
    const auto put = [&](const std::string& query, const HeaderList& headers = {}) {
        return send(port, "PUT", name + ".raw" + query, numbers(8), floats(2, headers));
    };
    for (const Row& row : rows) {
        CAPTURE(row.headers, row.query);
        CHECK(put(row.query, row.headers).status == row.status);
    }
    const HttpReply conflict = put("?if_version=0");
    CHECK(conflict.status == 412);
    CHECK(error_of(conflict)["data"]["parameter"] == "if_version");
    CHECK(put("?version=1000000").status == 200);
    CHECK(send(port, "HEAD", name).header("Shared-Tensor-Version") == "1000000");
    const HttpReply low = put("?version=1000000");
    CHECK(low.status == 412);
    CHECK(error_of(low)["data"]["parameter"] == "version");
    CHECK(error_of(low)["data"]["version"] == 1000000);
    CHECK(put("?if_version=" + send(port, "HEAD", name).header("Shared-Tensor-Version")).status == 200);
}

TEST_CASE("an upload has one form and size; another id, or another file under its id, is another upload",
          "[server][uploads]") {
    const Parts parts(shared_daemon());
    const int port = parts.port;
    CHECK(parts.put(0, 100).status == 202);
    const HttpReply other_shape = send(port, "PUT", parts.name + ".raw?upload=a", std::string(4, '\0'),
                                       shaped("float32", "[4000]", {{"Content-Range", "bytes 0-3/16000"}}));
    CHECK(other_shape.status == 409);
    CHECK(error_of(other_shape)["data"]["expected"].get<std::string>().find("16000 bytes") != std::string::npos);
    CHECK(send(port, "PUT", parts.name + ".raw?upload=b", std::string(16, '\0'),
               floats(1, {{"Content-Range", "bytes 0-15/16"}}))
              .status == 201);
    CHECK(parts.published() == std::string(16, '\0'));
    CHECK(parts.put(100, parts.bytes.size() - 100).status == 200);
    CHECK(parts.published() == parts.bytes);

    // The last part may come again whatever its condition.
    const std::string name = fresh_name(), bytes = numbers(8);
    const auto put = [&](const HeaderList& headers, const char* condition = "&if_version=0") {
        return send(port, "PUT", name + ".raw?upload=u" + condition, bytes, headers);
    };
    const HttpReply first = put(floats(2)), again = put(floats(2));
    CHECK(first.status == 201);
    CHECK(again.status == 200);
    CHECK(Json::parse(again.body) == Json::parse(first.body));
    CHECK(put(shaped("float32", "[8]")).status == 412);
    const HttpReply other = put(shaped("float32", "[8]"), "");
    CHECK(other.status == 200);
    CHECK(Json::parse(other.body)["version"] > Json::parse(first.body)["version"]);
}

TEST_CASE("an upload can be given up, and ends by itself without parts; so does what is known of one that is done",
          "[server][uploads]") {
    const Daemon daemon, forgetful({"--upload-ttl", "300ms"});
    const Parts parts(daemon.port());
    CHECK(parts.put(0, 1000).status == 202);
    CHECK(uploads_of(daemon.port()) == uploads(1, 16'000));
    CHECK(send(daemon.port(), "DELETE", parts.name + "?upload=b").status == 404);
    CHECK(send(daemon.port(), "DELETE", parts.name + "?upload=a").status == 204);
    CHECK(send(daemon.port(), "DELETE", parts.name + "?upload=a").status == 404);
    CHECK(uploads_of(daemon.port()) == uploads(0, 0));
    const Parts others(forgetful.port());
    CHECK(others.put(0, 1000).status == 202);
    CHECK(eventually([&] { return uploads_of(forgetful.port()) == uploads(0, 0); }));
    CHECK(others.state().status == 404);
    CHECK(others.put(0, others.bytes.size()).status == 201);  // begun anew
    CHECK(eventually([&] { return others.state().status == 404; }));
    CHECK(others.published() == others.bytes);
}

TEST_CASE("an upload is kept while a slow part of it arrives", "[server][uploads]") {
    const Daemon daemon({"--upload-ttl", "300ms"});
    const Parts parts(daemon.port());
    HttpPeer slow(daemon.port());
    slow.request(
        "PUT", "/tensors/" + parts.name + ".raw?upload=a", "",
        floats(1000,
               {{"Content-Range", "bytes 8000-15999/16000"}, {"Content-Length", "8000"}, {"Expect", "100-continue"}}));
    CHECK(slow.read_head().status == 100);  // from now on it keeps the upload
    CHECK(parts.put(0, 8000).status == 202);
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    slow.send(parts.bytes.substr(8000));
    CHECK(slow.read().status == 201);
    CHECK(parts.published() == parts.bytes);
}

TEST_CASE("all of a file counts, and it ends with its elements", "[server][uploads]") {
    const Daemon daemon({"--max-named-bytes", "10000"});
    const int port = daemon.port();
    CHECK(send(port, "PUT", "x.raw", numbers(4), floats(1)).status == 201);
    const HttpReply longer = send(port, "PUT", "y.npy", get(port, "x.npy").body + std::string(1000, '\0'));
    CHECK(longer.status == 400);
    CHECK(error_of(longer)["data"]["got"].get<std::string>().find("1000 bytes") != std::string::npos);
    const auto with_note = [](std::size_t length) {
        const Json header{{"__metadata__", {{"note", std::string(length, 'x')}}},
                          {"a", {{"dtype", "U8"}, {"shape", {1}}, {"data_offsets", {0, 1}}}}};
        return safetensors(header.dump(), "\x07");
    };
    CHECK(send(port, "PUT", "s.safetensors", with_note(4000)).status == 201);  // in the file, and as metadata
    CHECK(call(port, "server.info")["totals"]["named_tensors"]["bytes"].get<int>() > 8000);
    CHECK(send(port, "PUT", "t.safetensors", with_note(4000)).status == 507);
    const HttpReply notes = send(shared_daemon(), "PUT", "s.safetensors", with_note(270'000));
    CHECK(notes.status == 400);
    CHECK(error_of(notes)["data"]["expected"] == "shorter metadata");
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
    const HttpReply never = Parts(daemon.port(), 1251).put(0, 100);
    CHECK(never.status == 413);
    CHECK(error_of(never)["data"]["expected"].get<std::string>().find("--max-upload-bytes") != std::string::npos);
}

TEST_CASE("uploads are their principal's only, and one that is no admin puts a part of what all may",
          "[server][uploads]") {
    const DaemonOfUsers daemon({"--max-upload-bytes", "20000"});
    const int port = daemon.port();
    const Parts parts(port, 625), large(port, 626);  // 10,000 and 10,016 bytes
    CHECK(parts.put(0, 100).status == 401);
    CHECK(parts.put(0, 100, as("ann")).status == 202);
    for (const char* method : {"HEAD", "DELETE"})
        CHECK(send(port, method, parts.name + "?upload=a", {}, as("bob")).status == 404);
    CHECK(parts.put(100, parts.bytes.size() - 100, as("bob")).status == 202);
    CHECK(parts.put(100, parts.bytes.size() - 100, as("ann")).status == 201);
    CHECK(get(port, parts.name + ".raw", as("ann")).body == parts.bytes);
    CHECK(get(port, parts.name, as("bob")).status == 404);
    CHECK(send(port, "DELETE", parts.name + "?upload=a", {}, as("bob")).status == 204);
    const HttpReply never = large.put(0, 100, as("ann"));
    CHECK(never.status == 413);
    CHECK(error_of(never)["data"]["expected"] == "a file of at most 10000 bytes (half of --max-upload-bytes)");
    CHECK(large.put(0, 100, as("root")).status == 202);
}

TEST_CASE("what was put lies in shared memory, and is handed over without a copy", "[server][uploads]") {
    const Daemon daemon;  // versions are counted on where a name is removed: other tests look at them
    const Parts parts(daemon.port(), 20'000);
    CHECK(parts.put(0, 1000).status == 202);
    CHECK(parts.put(1000, parts.bytes.size() - 1000).status == 201);
    RawChannel channel(daemon.port());
    const HttpReply reply =
        post(daemon.port(), call_object("tensor.get", {{"name", parts.name}}).dump(), by_memory(channel.open()));
    CHECK(reply.header("Shared-Tensor-Transport") == "shm;tensors=1;copied=0");
    const auto segments = [&] {
        return call(daemon.port(), "server.info")["totals"]["shared_memory"]["segments"].get<int>();
    };
    CHECK(segments() == 1);
    channel.ask("lease.release", {{"leases", {Json::parse(reply.body)["result"]["tensor"]["$tensor"]["lease"]}}});
    CHECK(call(daemon.port(), "tensor.delete", {{"name", parts.name}}).is_object());
    CHECK(segments() == 0);
}
