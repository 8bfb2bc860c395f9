#include <catch2/catch_test_macros.hpp>

#include "server/services.hpp"
#include "support/temporary_folder.hpp"

using namespace shared_tensor;
using namespace shared_tensor::server;
using namespace shared_tensor::test;

TEST_CASE("A server offers shared memory only while its local channel is open, and else says why not", "[server]") {
    const TemporaryFolder folder;
    ServerOptions options;
    options.local_socket = folder.file("channel.sock");
    Services all(Registry(), options);
    const auto shm = [&] { return describe_transports(all)["shm"]; };
    CHECK(shm()["usable"] == false);
    CHECK(shm()["reason"] == "the local channel of the server is not open");
    all.local.start(0);
    CHECK(shm()["usable"] == true);
    all.local.stop();
    CHECK(shm()["usable"] == false);
}
