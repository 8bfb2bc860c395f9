// GET and HEAD of /tensors/...: tensors as files.

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "base/bytes/digest.hpp"
#include "file_client.hpp"
#include "integration/memory/raw_channel.hpp"

using namespace shared_tensor::test;

namespace {

/// rows x 4 of float32: 0, 1, 2, ...
void put_rows(int port, const std::string& name, int rows, const HeaderList& headers = {}) {
    const std::string bytes = numbers(static_cast<std::size_t>(rows) * 4);
    const Json x{
        {"$tensor", {{"dtype", "float32"}, {"shape", {rows, 4}}, {"body", {{"offset", 0}, {"size", bytes.size()}}}}}};
    const auto reply = post(port, framed(call_object("tensor.put", {{"name", name}, {"tensor", x}}).dump(), bytes),
                            join({{"Content-Type", kFrame}}, headers));
    REQUIRE(Json::parse(reply.body)["result"]["bytes"] == bytes.size());
}

Json get_by(int port, const std::string& name, const HeaderList& headers = {}) {
    return call(port, "tensor.get", {{"name", name}}, headers)["tensor"]["$tensor"];
}

const HeaderList kUrl{{"Shared-Tensor-Accept", "url"}};

/// The header of a safetensors file, and the bytes behind it.
std::pair<Json, std::string> parts_of(const std::string& file) {
    std::uint64_t size = 0;
    std::memcpy(&size, file.data(), 8);
    return {Json::parse(file.substr(8, size)), file.substr(8 + size)};
}

}  // namespace

TEST_CASE("a named tensor is got as raw bytes, .npy or safetensors", "[server][files]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    put_rows(port, name, 100);
    const HttpReply raw = get(port, name + ".raw");
    CHECK(raw.status == 200);
    CHECK(raw.body == numbers(400));
    CHECK(raw.header("Content-Type") == "application/octet-stream");
    CHECK(raw.header("Shared-Tensor-Dtype") == "float32");
    CHECK(raw.header("Shared-Tensor-Shape") == "[100,4]");
    CHECK(raw.header("Shared-Tensor-Version") == "1");
    CHECK(get(port, name, {{"Accept", "application/octet-stream"}}).body == raw.body);

    const HttpReply npy = get(port, name + ".npy");
    CHECK(npy.body.substr(0, 6) == "\x93NUMPY");
    CHECK(npy.body.find("'shape': (100, 4)") != std::string::npos);
    CHECK(npy.body.ends_with(raw.body));
    CHECK(get(port, name, {{"Accept", "application/x-npy"}}).body == npy.body);

    const HttpReply safetensors = get(port, name, {{"Accept", "*/*"}});
    const auto [header, bytes] = parts_of(safetensors.body);
    CHECK(header[name]["dtype"] == "F32");
    CHECK(header[name]["data_offsets"] == Json({0, 1600}));
    CHECK(bytes == raw.body);
    CHECK(get(port, name + ".safetensors").body == safetensors.body);
}

TEST_CASE("a set is got whole, and its members by themselves", "[server][files]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    Json tensors = Json::object();
    for (int i = 0; i < 3000; ++i)  // more parts than one system call takes
        tensors["layer/" + std::to_string(i)] = {{"$tensor", {{"data", {i, i + 0.5}}}}};
    call(port, "tensor.put", {{"name", name}, {"tensors", tensors}, {"metadata", {{"step", "7"}}}});
    const auto [header, bytes] = parts_of(get(port, name).body);
    CHECK(header.size() == 3001);
    CHECK(header["__metadata__"]["step"] == "7");
    bool all_there = true;
    for (int i = 0; i < 3000; ++i) {
        float pair[2];
        std::memcpy(pair, &bytes[header["layer/" + std::to_string(i)]["data_offsets"][0].get<std::size_t>()], 8);
        all_there = all_there && pair[0] == static_cast<float>(i) && pair[1] == static_cast<float>(i) + 0.5F;
    }
    CHECK(all_there);
    CHECK(get(port, name + "/layer/2.raw").body == std::string("\0\0\0\x40\0\0\x20\x40", 8));
    CHECK(get(port, name + "/layer%2F2.raw").body.size() == 8);
    CHECK(get(port, name + "/none").status == 404);
    CHECK(get(port, name + ".npy").status == 400);
}

TEST_CASE("ranges are parts of the same bytes", "[server][files]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    put_rows(port, name, 50'000);
    const std::string whole = get(port, name + ".npy").body;
    std::string joined;
    for (std::size_t first = 0; first < whole.size();) {
        const std::size_t last = std::min(whole.size(), first + 123'457) - 1;
        const HttpReply part =
            get(port, name + ".npy", {{"Range", "bytes=" + std::to_string(first) + "-" + std::to_string(last)}});
        REQUIRE(part.status == 206);
        REQUIRE(part.header("Content-Range") ==
                "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" + std::to_string(whole.size()));
        joined += part.body;
        first = last + 1;
    }
    CHECK(joined == whole);
    CHECK(get(port, name + ".npy", {{"Range", "bytes=-100"}}).body == whole.substr(whole.size() - 100));
    CHECK(get(port, name + ".npy", {{"Range", "bytes=0-1,5-6"}}).status == 200);
    const HttpReply beyond = get(port, name + ".npy", {{"Range", "bytes=9999999-"}});
    CHECK(beyond.status == 416);
    CHECK(beyond.header("Content-Range") == "bytes */" + std::to_string(whole.size()));
    CHECK(error_of(beyond)["data"]["parameter"] == "Range");
}

TEST_CASE("HEAD tells all but the bytes", "[server][files]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    put_rows(port, name, 100);
    const HttpReply head = send(port, "HEAD", name + ".raw", {}, {{"Range", "bytes=0-1"}});
    CHECK(head.status == 200);
    CHECK(head.header("Content-Length") == "1600");
    CHECK(head.header("Accept-Ranges") == "bytes");
    CHECK(head.header("ETag") == get(port, name + ".raw").header("ETag"));
    CHECK(send(port, "HEAD", fresh_name()).status == 404);
}

TEST_CASE("an entity tag stands for one version in one form", "[server][files]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    put_rows(port, name, 100);
    const std::string old = get(port, name + ".raw").header("ETag");
    CHECK(old != get(port, name + ".npy").header("ETag"));
    CHECK(old != get(port, name + ".raw?slice=0:5").header("ETag"));
    const HttpReply same = get(port, name + ".raw", {{"If-None-Match", old}});
    CHECK(same.status == 304);
    CHECK(same.body.empty());
    CHECK(get(port, name + ".raw", {{"If-Range", old}, {"Range", "bytes=0-3"}}).status == 206);
    CHECK(get(port, name + ".raw", {{"If-Match", old}, {"Range", "bytes=0-3"}}).status == 206);
    put_rows(port, name, 200);
    CHECK(get(port, name + ".raw", {{"If-Match", old}, {"Range", "bytes=0-3"}}).status == 412);
    CHECK(get(port, name + ".raw", {{"If-Range", "*"}, {"Range", "bytes=0-3"}}).status == 200);
    CHECK(get(port, name + ".raw", {{"If-None-Match", old}}).status == 200);
    const HttpReply changed = get(port, name + ".raw", {{"If-Range", old}, {"Range", "bytes=0-3"}});
    CHECK(changed.status == 200);
    CHECK(changed.body.size() == 3200);
    CHECK(get(port, name + ".raw?version=2").status == 200);
    CHECK(get(port, name + ".raw?version=1").status == 404);
}

TEST_CASE("rows of a tensor can be got", "[server][files]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    put_rows(port, name, 100);
    const std::string whole = numbers(400);
    const HttpReply rows = get(port, name + ".raw?slice=10:20");
    CHECK(rows.body == whole.substr(160, 160));
    CHECK(rows.header("Shared-Tensor-Shape") == "[10,4]");
    CHECK(get(port, name + ".raw?slice=90:").body == whole.substr(1440));
    CHECK(get(port, name + ".raw?slice=:").body == whole);
    CHECK(get(port, name + ".raw?slice=7:7").body.empty());
    for (const char* wrong : {"5", "a:b", "-5:", "20:10", "0:101", "0:99999999999999999999", "1:2:3"}) {
        const HttpReply reply = get(port, name + ".raw?slice=" + wrong);
        CHECK(reply.status == 400);
        CHECK(error_of(reply)["data"]["parameter"] == "slice");
    }
    const HttpReply unknown = get(port, name + ".raw?rows=1");
    CHECK(unknown.status == 400);
    CHECK(error_of(unknown)["data"] ==
          Json{{"parameter", "rows"},
               {"expected", "one of the parameters that there are: slice, version, digests, owner"},
               {"got", "an unknown parameter"}});
    CHECK(get(port, name + ".raw?slice=%zz").status == 400);
}

TEST_CASE("each part, form, member and version of a name has a digest of its own, the same each time",
          "[server][files]") {
    Daemon daemon;
    const int port = daemon.port();
    const auto row = [](int first) {
        return Json{{"$tensor", {{"dtype", "int32"}, {"data", {first, first + 1, first + 2, first + 3}}}}};
    };
    call(port, "tensor.put", {{"name", "set"}, {"tensors", {{"a", row(1)}, {"b", row(10)}}}});
    call(port, "tensor.put", {{"name", "x"}, {"tensor", row(1)}});
    std::set<std::string> seen;
    const auto digest = [&](const std::string& path, const HeaderList& more = {}, const char* method = "GET") {
        const HeaderList headers = join({{"Want-Content-Digest", "sha-256=1, xxh3-128=5"}}, more);
        return send(port, method, path, {}, headers).header("Content-Digest");
    };
    const auto is_new = [&](const std::string& path, const HeaderList& headers = {}) {
        const std::string one = digest(path, headers);
        CHECK(one.starts_with("xxh3-128=:"));
        CHECK(digest(path, headers) == one);
        return seen.insert(one).second;
    };
    CHECK(is_new("x.raw"));
    CHECK(digest("x.raw", {}, "HEAD") == digest("x.raw"));
    CHECK_FALSE(is_new("x.raw", {{"Range", "bytes=0-"}}));
    CHECK(is_new("x.npy"));
    CHECK(is_new("x.raw", {{"Range", "bytes=0-7"}}));
    CHECK(is_new("x.raw", {{"Range", "bytes=0-3"}}));
    CHECK(is_new("x.raw", {{"Range", "bytes=4-7"}}));
    CHECK(is_new("x.raw?slice=2:"));
    CHECK_FALSE(is_new("set/a.raw"));  // as those of x
    CHECK(is_new("set/b.raw"));
    CHECK(is_new("set"));
    call(port, "tensor.put", {{"name", "x"}, {"tensor", row(5)}});
    CHECK(is_new("x.raw"));
    CHECK(is_new("x.raw", {{"Range", "bytes=0-7"}}));
    CHECK(get(port, "x.raw").header("Content-Digest").empty());  // for those who ask for it
    for (const char* other : {"sha-256=9", "xxh3-128=0"})
        CHECK(get(port, "x.raw", {{"Want-Content-Digest", other}}).header("Content-Digest").empty());
}

TEST_CASE("a file's digests are those of the blocks of each tensor", "[server][files]") {
    const int port = shared_daemon();
    const std::string name = fresh_name(), bytes = numbers(4 * 9000);
    put_rows(port, name, 9000);
    const auto digests = [](const std::string& all, std::size_t block) {
        std::string expected;
        for (std::size_t at = 0; at < all.size(); at += block) {
            const std::string part = all.substr(at, block);
            for (const std::byte byte : shared_tensor::Digest::of(std::as_bytes(std::span(part))))
                expected.push_back(static_cast<char>(byte));
        }
        return expected;
    };
    for (const char* const form : {".raw", ".safetensors", ".npy"}) {
        for (const std::size_t block : {65'536, 131'072})
            CHECK(get(port, name + form + "?digests=" + std::to_string(block)).body == digests(bytes, block));
    }
    CHECK(get(port, name + ".raw?slice=100:9000&digests=65536").body == digests(bytes.substr(1600), 65'536));
    const std::string set = fresh_name();  // the larger items come first, whatever their names
    const auto list = [](const Json& data, const char* dtype) {
        return Json{{"$tensor", {{"dtype", dtype}, {"data", data}}}};
    };
    call(port, "tensor.put",
         {{"name", set},
          {"tensors", {{"a", list({1}, "int8")}, {"b", list({2}, "int16")}, {"c", list(Json::array(), "int8")}}}});
    const HttpReply of_set = get(port, set + ".safetensors?version=1&digests=65536");
    CHECK(of_set.body == digests(std::string("\2\0", 2), 65'536) + digests("\1", 65'536));
    CHECK(of_set.header("Content-Type") == "application/octet-stream");
    CHECK(get(port, set + "/a.raw?digests=65536").body == digests("\1", 65'536));
    for (const char* const wrong : {"0", "1", "32768", "65537", "2097152", "x", ""})
        CHECK(get(port, name + ".raw?digests=" + wrong).status == 400);
    CHECK(get(port, name + ".raw?version=2&digests=65536").status == 404);
    CHECK(get(port, name + ".raw?digests=65536", {{"If-Match", "\"another\""}}).status == 412);
}

TEST_CASE("leased tensors are got by their lease", "[server][files]") {
    const int port = shared_daemon();
    RawChannel channel(port);
    const std::string name = fresh_name();
    put_rows(port, name, 10'000);
    const std::string lease = get_by(port, name, by_memory(channel.open()))["lease"];
    CHECK(get(port, lease + ".raw").body == numbers(40'000));
    CHECK(get(port, lease).body.find("\"tensor\"") != std::string::npos);
    const std::string etag = get(port, lease).header("ETag");
    CHECK(etag.starts_with("W/"));  // its owner may write to it
    CHECK(get(port, lease, {{"If-Range", etag}, {"Range", "bytes=0-3"}}).status == 200);
    channel.ask("lease.release", {{"leases", {lease}}});
    const HttpReply gone = get(port, lease);
    CHECK(gone.status == 404);
    CHECK(error_of(gone)["code"] == -32005);
    CHECK(error_of(gone)["data"]["kind"] == "lease");
}

TEST_CASE("files and leases without a session are their principal's only, and files an admin's", "[server][files]") {
    const DaemonOfUsers daemon;
    const int port = daemon.port();
    put_rows(port, "x", 10, as("ann"));
    CHECK(get(port, "x", as("ann")).status == 200);
    put_rows(port, "y", 10, as("ann"));
    put_rows(port, "y", 10, as("bob"));
    CHECK(get(port, "y", as("ann")).header("ETag") != get(port, "y", as("bob")).header("ETag"));
    CHECK(get(port, "x", as("bob")).status == 404);
    CHECK(get(port, "x?owner=token%3Aann", as("bob")).status == 404);
    CHECK(get(port, "x?owner=token%3Aann", as("root")).status == 200);
    CHECK(get(port, "x").status == 401);
    CHECK(send(port, "DELETE", "x", {}, as("ann")).status == 405);
    const std::string lease = get_by(port, "x", join(as("ann"), kUrl))["lease"];
    CHECK(get(port, lease, as("bob")).status == 404);
    for (const char* method : {"lease.release", "lease.renew"})
        CHECK(call_code(port, method, {{"leases", {lease}}}, as("bob")) == -32005);
    CHECK(get(port, lease, as("ann")).status == 200);
    CHECK(call(port, "lease.release", {{"leases", {lease}}}, as("ann"))["leases"] == 1);
}

TEST_CASE("a result stays in the daemon for those who ask for it, and is got by its url", "[server][files]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    put_rows(port, name, 10'000);
    const HttpReply reply =
        post(port, call_object("tensor.get", {{"name", name}}).dump(), {{"Shared-Tensor-Accept", "data, base64, url"}});
    CHECK(reply.header("Shared-Tensor-Transport") == "url;tensors=1;copied=0");
    CHECK(reply.body.size() < 1000);
    const Json tensor = Json::parse(reply.body)["result"]["tensor"]["$tensor"];
    const std::string lease = tensor["lease"], url = tensor["url"];
    CHECK(url == "/tensors/" + lease);
    CHECK(tensor["shape"] == Json({10'000, 4}));
    CHECK(get(port, url.substr(9) + ".raw").body == numbers(40'000));
    const Json info = call(port, "lease.list", {{"limit", 1000}})["leases"];
    const auto mine = std::find_if(info.begin(), info.end(), [&](const Json& one) { return one["id"] == lease; });
    REQUIRE(mine != info.end());
    CHECK((*mine)["transport"] == "url");
    CHECK((*mine)["mine"] == true);
    CHECK((*mine)["expires_in_ms"].get<int>() > 200'000);
    // It keeps its version, and can be an argument.
    call(port, "tensor.delete", {{"name", name}});
    CHECK(get(port, lease + ".raw").body == numbers(40'000));
    CHECK(call(port, "tensor.put", {{"name", name}, {"tensor", {{"$ref", lease}}}})["bytes"] == 160'000);
    CHECK(call(port, "lease.release", {{"leases", {lease}}})["leases"] == 1);
    CHECK(get(port, lease).status == 404);
    CHECK(get_by(port, name, {{"Shared-Tensor-Accept", "data"}}).contains("data"));
    CHECK(get_by(port, name, {{"Shared-Tensor-Accept", "base64"}}).contains("base64"));
    CHECK_FALSE(get_by(port, name, {{"Shared-Tensor-Accept", "data, base64"}}).contains("url"));
    CHECK(get_by(port, name).contains("base64"));
}

TEST_CASE("a lease without a channel lives for a time and can be renewed", "[server][files]") {
    const Daemon daemon;
    const int port = daemon.port();
    put_rows(port, "x", 10);
    const std::string kept = get_by(port, "x", kUrl)["lease"], left = get_by(port, "x", kUrl)["lease"];
    CHECK(call(port, "lease.renew", {{"leases", {kept}}, {"ttl_ms", 600'000}})["leases"] == 1);
    CHECK(call(port, "lease.renew", {{"leases", {left}}, {"ttl_ms", 1'000}})["leases"] == 1);
    // To look at it by GET would renew it.
    CHECK(eventually([&] { return call(port, "server.info")["totals"]["shared_memory"]["leases"] == 1; }));
    CHECK(get(port, left).status == 404);
    CHECK(get(port, kept).status == 200);
    CHECK(call_code(port, "lease.renew", {{"leases", {left}}}) == -32005);
    CHECK(call(port, "server.info")["totals"]["shared_memory"]["leases"] == 1);
}

TEST_CASE("the leases of a session over HTTP end with it", "[server][files]") {
    const Daemon daemon;
    const int port = daemon.port();
    put_rows(port, "x", 10);
    const std::string session = call(port, "session.open")["session"], other = call(port, "session.open")["session"];
    const std::string lease = get_by(port, "x", join(kUrl, {{"Shared-Tensor-Session", session}}))["lease"];
    CHECK(call_code(port, "lease.release", {{"leases", {lease}}}) == -32005);
    CHECK(call_code(port, "lease.release", {{"leases", {lease}}}, {{"Shared-Tensor-Session", other}}) == -32005);
    CHECK(get(port, lease).status == 200);
    call(port, "session.close", {{"session", session}});
    CHECK(get(port, lease).status == 404);
}

TEST_CASE("what is kept to be fetched is bounded; beyond it the bytes are sent", "[server][files]") {
    const Daemon daemon({"--max-kept-bytes", "300000"});
    const int port = daemon.port();
    put_rows(port, "x", 10'000);  // 160,000 bytes
    const HeaderList any{{"Shared-Tensor-Accept", "url, base64"}};
    const std::string lease = get_by(port, "x", any)["lease"];
    CHECK(get_by(port, "x", any).contains("base64"));
    const Json rejected = respond(port, "tensor.get", {{"name", "x"}}, {{"Shared-Tensor-Require", "url"}})["error"];
    CHECK(rejected["code"] == -32006);
    CHECK(rejected["data"]["reasons"]["url"].get<std::string>().find("300000") != std::string::npos);
    call(port, "lease.release", {{"leases", {lease}}});
    CHECK(get_by(port, "x", any).contains("url"));
}
