// What a forked child does with the servers and nodes of its parent.

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <memory>

#include <shared_tensor/client.hpp>
#include <shared_tensor/node.hpp>
#include <shared_tensor/server.hpp>

#include "support/daemon.hpp"
#include "support/forked_child.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

Registry doubling() {
    Registry registry;
    registry.add(
        "twice", [](double x) { return 2 * x; }, arg("x"));
    return registry;
}

ServerOptions any_port() {
    ServerOptions options;
    options.port = 0;
    return options;
}

TensorRef all(float value, std::size_t count = 1 << 16) { return tensor_of(std::vector(count, value)); }

bool exists(const std::string& path) {
    struct stat found {};
    return ::lstat(path.c_str(), &found) == 0;
}

}  // namespace

TEST_CASE("a child's copy of a server ends nothing of its parent's", "[fork][server]") {
    TemporaryFolder folder;
    ServerOptions options = any_port();
    options.unix_socket = folder.file("http");
    options.local_socket = folder.file("local");
    auto server = std::make_unique<Server>(doubling(), options);
    server->start();
    const Client client(server->url()), by_file("unix:" + options.unix_socket);
    CHECK(client.call<double>("twice", 1) == 2);
    CHECK(error_in_child([&] {
              expect(client.call<double>("twice", 2) == 4, "the child calls its parent's server");
              expect(server->stop(1s), "its copy has nothing to stop");
              server.reset();
          }) == "");
    CHECK(exists(options.unix_socket));
    CHECK(exists(options.local_socket));
    CHECK(client.call<double>("twice", 3) == 6);
    CHECK(by_file.call<double>("twice", 4) == 8);
}

TEST_CASE("a child keeps neither the port nor the clients of its parent's server", "[fork][server]") {
    ServerOptions options = any_port();
    auto server = std::make_unique<Server>(doubling(), options);
    server->start();
    options.port = server->port();
    ClientOptions own;
    own.url = server->url();
    own.retry = no_retry();
    const Client client(own);
    CHECK(client.call<double>("twice", 1) == 2);
    const Pipe go;
    ForkedChild child([&] { go.wait(); });
    server.reset();
    CHECK_THROWS_AS(client.call<double>("twice", 1), TransportFailure);
    Server next(doubling(), options);
    next.start();
    CHECK(client.call<double>("twice", 2) == 4);
    go.tell();
    CHECK(child.fault() == "");
}

TEST_CASE("a child makes a server of its own", "[fork][server]") {
    ServerOptions options = any_port();
    Server server(doubling(), options);
    server.start();
    CHECK(error_in_child([&] {
              Server own(doubling(), options);
              own.start();
              expect(Client(own.url()).call<double>("twice", 3) == 6, "it answers");
              expect(own.stop(5s), "it ends");
          }) == "");
    CHECK(Client(server.url()).call<double>("twice", 1) == 2);
}

TEST_CASE("a child pulls and pushes by its parent's node, whose inbox stays the parent's", "[fork][node]") {
    const Node other;
    auto node = std::make_unique<Node>();
    other.publish("x", all(3));
    CHECK(identical(node->pull(other.url(), "x").tensor(), all(3.0F)));
    CHECK(error_in_child([&] {
              expect(identical(node->pull(other.url(), "x").tensor(), all(3.0F)), "it pulls");
              node->push(other.url(), "from the child", all(4));
              node->push(node->url(), "to the parent", all(5, 3));
              node->publish("y", all(6, 3));
              expect_throws<TransportFailure>([&] { node->receive(1ms); }, "the inbox is rejected");
              node->shutdown();
              node.reset();
          }) == "");
    const auto pushed = other.receive(30s);
    REQUIRE(pushed);
    CHECK(identical(pushed->tensor(), all(4.0F)));
    const auto message = node->receive(30s);
    REQUIRE(message);
    CHECK(message->name() == "to the parent");
    CHECK(identical(node->pull(node->url(), "y").tensor(), all(6.0F, 3)));
    CHECK(identical(node->pull(other.url(), "x").tensor(), all(3.0F)));
}
