#include <sys/socket.h>

#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>
#include <thread>

#include "protocol/json_rpc/message.hpp"
#include "support/forked_child.hpp"
#include "unit/local/channel/channel_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using local::Packet;

TEST_CASE("a channel carries descriptors both ways, and both ends know each other from the kernel", "[local]") {
    ChannelUnderTest test;
    test.recorder.on_packet = [&](local::ChannelId id, const Packet& packet) {
        const auto item = local::read_request(packet);
        const auto& request = std::get<json_rpc::Request>(item);
        std::string text;
        json_rpc::print(json_rpc::Response{*request.id, json_rpc::Json("seen " + request.method)}, text);
        test.server->send(id, {text, {memory_with("back: " + text_behind(packet.descriptors.at(0)))}});
    };
    ClientEnd client(test.options.path);
    const auto answer = client.channel.ask("request", nullptr, {memory_with("forth")});
    CHECK(answer.result == "seen request");
    CHECK(text_behind(answer.descriptors.at(0)) == "back: forth");
    const local::Peer peer = test.recorder.state.with([](const Recorder::State& state) { return state.peers.at(0); });
    CHECK(peer.pid == ::getpid());
    CHECK(peer.uid == ::geteuid());
    CHECK(client.channel.peer().pid == ::getpid());
}

TEST_CASE("who waits for an answer is told when the channel ends instead", "[local]") {
    ChannelUnderTest test;
    test.recorder.on_packet = [&](local::ChannelId id, const Packet&) { test.server->close(id); };
    ClientEnd client(test.options.path);
    CHECK_THROWS_AS(client.channel.ask("request", nullptr), local::ChannelGone);
    CHECK_THROWS_AS(client.channel.ask("another", nullptr), local::ChannelGone);
}

TEST_CASE("a request to a server that does not answer ends at the call's deadline, or when the call is stopped",
          "[local]") {
    ChannelUnderTest test;
    ClientEnd client(test.options.path);
    const SteadyTime start = real_clock().now();
    {
        const local::WaitLimit limit(start + 50ms, {});
        CHECK_THROWS_WITH(client.channel.ask("request", nullptr), "the server does not answer on the local channel");
    }
    std::stop_source stop;
    const local::WaitLimit limit(start + 1min, stop.get_token());
    std::jthread stops([&] {
        test.recorder.packets.wait(2);
        stop.request_stop();
    });
    CHECK_THROWS_WITH(client.channel.ask("another", nullptr), ContainsSubstring("the call was stopped"));
    CHECK(real_clock().now() - start < 9s);  // without limits: 10 s each
}

TEST_CASE("a socket that is in use or is not there is named", "[local]") {
    ChannelUnderTest test;
    local::ChannelServerOptions again = test.options;
    CHECK_THROWS_WITH(local::ChannelServer(again, test.recorder), ContainsSubstring(test.options.path));
    test.server.reset();
    CHECK_THROWS_WITH(local::Channel(test.options.path, {}), ContainsSubstring(test.options.path));
}

TEST_CASE("packets arrive whole and in order, however many wait", "[local]") {
    ChannelUnderTest test;
    test.options.max_waiting_bytes = std::size_t{64} << 20;
    test.restart();
    Event go;
    std::vector<std::string> got, wanted;
    Event all;
    local::Channel client(test.options.path, {[&](const json_rpc::Request& request) {
                                                  go.wait();
                                                  got.push_back(request.method);
                                                  all.set();
                                              },
                                              {}});
    REQUIRE(test.recorder.opens.wait());
    for (int i = 0; i < 3000; ++i) {
        wanted.push_back(std::to_string(i) + std::string(1000, '.'));
        REQUIRE(test.server->send(test.recorder.first(), local::notification(wanted.back().c_str(), "list", {})));
    }
    go.set();
    REQUIRE(all.wait(3000));
    CHECK((got == wanted));
}

TEST_CASE("many threads send through one channel at once", "[local]") {
    ChannelUnderTest test;
    ClientEnd client(test.options.path);
    REQUIRE(test.recorder.opens.wait());
    {
        std::vector<std::jthread> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.emplace_back([&, thread] {
                for (int i = 0; i < 250; ++i) {
                    const std::string text = std::to_string(thread) + ':' + std::to_string(i);
                    (void)test.server->send(test.recorder.first(), local::notification(text.c_str(), "list", {}));
                    const auto until = patience();
                    while (!client.tell(text.c_str()) && real_clock().now() < until) {  // it waits for 2 s
                    }
                }
            });
        }
    }
    CHECK(client.packets.wait(1000));
    CHECK(test.recorder.packets.wait(1000));
    const auto texts = test.recorder.state.with([](const Recorder::State& state) {
        std::set<std::string> all;
        for (const Packet& packet : state.packets)
            all.insert(packet.text);
        return all;
    });
    CHECK(texts.size() == 1000);
}

TEST_CASE("a peer that does not read is closed, and the others go on", "[local]") {
    ChannelUnderTest test;
    const UniqueFd deaf = raw_connect(test.options.path);
    REQUIRE(deaf);
    REQUIRE(test.recorder.opens.wait());
    ClientEnd other(test.options.path);
    REQUIRE(test.recorder.opens.wait(2));
    const std::string text(10'000, 'x');
    int sent = 0;
    while (sent < 10'000 && test.server->send(test.recorder.first(), {text, {}}))
        ++sent;
    CHECK(sent < 10'000);
    REQUIRE(test.recorder.closes.wait());
    CHECK(test.recorder.state.with([](const Recorder::State& state) { return state.closed; }) ==
          std::vector{test.recorder.first()});
    CHECK(other.tell("still there"));
    CHECK(test.recorder.packets.wait());
    CHECK(test.server->size() == 1);
}

TEST_CASE("more channels than allowed are closed at once, and a free place is taken again", "[local]") {
    ChannelUnderTest test(2);
    auto one = std::make_unique<ClientEnd>(test.options.path);
    const ClientEnd two(test.options.path);
    REQUIRE(test.recorder.opens.wait(2));
    const auto opened = test.recorder.state.with([](const Recorder::State& state) { return state.opened; });
    for (const local::ChannelId id : opened)
        test.server->settled(id);
    ClientEnd three(test.options.path);
    CHECK(three.ended.wait());
    CHECK_FALSE(three.tell("x"));
    one.reset();
    REQUIRE(test.recorder.closes.wait());
    ClientEnd four(test.options.path);
    CHECK(four.tell("x"));
    CHECK(test.recorder.packets.wait());
}

TEST_CASE("who is not welcome is closed and not heard of again", "[local]") {
    ChannelUnderTest test;
    test.recorder.welcome = false;
    ClientEnd client(test.options.path);
    CHECK(client.ended.wait());
    CHECK(test.recorder.closes.count() == 0);
    CHECK(test.server->size() == 0);
}

TEST_CASE("either side may end a channel", "[local]") {
    ChannelUnderTest test;
    auto client = std::make_unique<ClientEnd>(test.options.path),
         other = std::make_unique<ClientEnd>(test.options.path);
    REQUIRE(test.recorder.opens.wait(2));
    SECTION("the client") {
        client->channel.close();
        client->channel.close();
        CHECK_FALSE(client->tell("x"));
        other.reset();
        CHECK(test.recorder.closes.wait(2));
        CHECK_FALSE(test.server->send(test.recorder.first(), {"x", {}}));
        CHECK(client->ended.count() == 0);  // a channel that was closed tells nothing more
    }
    SECTION("the server, one of them") {
        test.server->close(test.recorder.first());
        test.server->close(test.recorder.first());
        CHECK(client->ended.wait());
        CHECK(test.recorder.closes.wait());
        CHECK(test.recorder.closes.count() == 1);
    }
    SECTION("the server, with all of them") {
        test.server.reset();
        CHECK(client->ended.wait());
        CHECK(other->ended.wait());
        CHECK(test.recorder.closes.count() == 2);
        test.restart();
        ClientEnd again(test.options.path);
        CHECK(again.tell("x"));
        CHECK(test.recorder.packets.wait());
    }
}

TEST_CASE("a thousand short channels leave nothing behind", "[local]") {
    allow_many_descriptors();
    ChannelUnderTest test;
    const ClientEnd one(test.options.path);
    REQUIRE(test.recorder.opens.wait());
    const std::size_t before = open_descriptors();
    for (int i = 0; i < 1000; ++i) {
        const UniqueFd fd = raw_connect(test.options.path);
        REQUIRE(fd);
        REQUIRE(local::send_packet(fd.get(), {"x", {memory_with("y")}}) == local::Sent::yes);
    }
    REQUIRE(test.recorder.closes.wait(1000));
    test.recorder.state.with([](Recorder::State& state) { state.packets.clear(); });
    CHECK(test.server->size() == 1);
    CHECK(eventually([&] { return open_descriptors() == before; }));
}

TEST_CASE("the end of a process is told at once, though its child still holds the socket", "[local]") {
    ChannelUnderTest test;
    Pipe ended;
    ForkedChild holder([&] {  // nothing but system calls: it is forked from a process with threads
        const UniqueFd socket = raw_connect(test.options.path);
        if (::fork() == 0) ended.wait();
    });
    REQUIRE(test.recorder.opens.wait());
    CHECK(holder.fault() == "");
    CHECK(test.recorder.closes.wait());
    ended.tell();  // its child lived, and so did its copy of the socket
}

TEST_CASE("the channel of a forked process is its parent's", "[local]") {
    ChannelUnderTest test;
    ClientEnd client(test.options.path);
    REQUIRE(test.recorder.opens.wait());
    CHECK_FALSE(in_child([&] { return client.tell("from the child"); }));
    CHECK(test.recorder.closes.count() == 0);
    CHECK(client.tell("from the parent"));
    REQUIRE(test.recorder.packets.wait());
    test.recorder.state.with([](const Recorder::State& state) {
        CHECK(state.packets.at(0).text.find("from the parent") != std::string::npos);
    });
}
