// Digests of files that are asked for again and again.

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "integration/server/shared_daemon.hpp"
#include "support/daemon.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor::test;

namespace {

std::string digest(int port, const std::string& path, const HeaderList& more = {}) {
    HttpPeer peer(port);
    HeaderList headers{{"Want-Content-Digest", "xxh3-128=5"}};
    headers.insert(headers.end(), more.begin(), more.end());
    peer.request("GET", path, "", headers);
    const HttpReply reply = peer.read();
    CHECK((reply.status == 200 || reply.status == 206));
    return reply.header("Content-Digest");
}

Json numbers(int first) {
    return {{"$tensor", {{"dtype", "int32"}, {"data", {first, first + 1, first + 2, first + 3}}}}};
}

}  // namespace

TEST_CASE("each part, form, member and version of a name has a digest of its own, the same each time", "[server]") {
    Daemon daemon;
    const int port = daemon.port();
    call(port, "tensor.put", {{"name", "set"}, {"tensors", {{"a", numbers(1)}, {"b", numbers(10)}}}});
    call(port, "tensor.put", {{"name", "x"}, {"tensor", numbers(1)}});
    std::set<std::string> seen;
    const auto is_new = [&](const std::string& path, const HeaderList& headers = {}) {
        const std::string one = digest(port, path, headers);
        CHECK_FALSE(one.empty());
        CHECK(digest(port, path, headers) == one);
        return seen.insert(one).second;
    };
    CHECK(is_new("/tensors/x.raw"));
    CHECK(is_new("/tensors/x.npy"));
    CHECK(is_new("/tensors/x.raw", {{"Range", "bytes=0-7"}}));
    CHECK(is_new("/tensors/x.raw", {{"Range", "bytes=0-3"}}));
    CHECK(is_new("/tensors/x.raw", {{"Range", "bytes=4-7"}}));
    CHECK(is_new("/tensors/x.raw?slice=2:"));
    CHECK_FALSE(is_new("/tensors/set/a.raw"));  // as those of x
    CHECK(is_new("/tensors/set/b.raw"));
    CHECK(is_new("/tensors/set"));
    call(port, "tensor.put", {{"name", "x"}, {"tensor", numbers(5)}});
    CHECK(is_new("/tensors/x.raw"));
    CHECK(is_new("/tensors/x.raw", {{"Range", "bytes=0-7"}}));
}
