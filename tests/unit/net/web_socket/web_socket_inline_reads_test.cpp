// Threads that read a WebSocket in place of its running thread.

#include "net/web_socket/web_socket.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

#include "own_web_socket.hpp"
#include "support/event.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;
using net::WebSocketInlineReads;
using std::chrono::milliseconds;

bool never() { return false; }

/// Sends a message and reads the answer in read_inline() or, where the answer is too slow for that, waits for it; again
/// until an answer was read on this thread. How many it took; 0 when none ever was.
std::size_t exchange_until_read_inline(OwnClient& client) {
    const SteadyTime latest = patience();
    for (std::size_t i = client.count(); real_clock().now() < latest; ++i) {
        client.send(kText, std::to_string(i));
        client.socket().read_inline([&] { return client.count() > i; });
        const Received answer = client.receive_one(i);
        if (answer.text != std::to_string(i)) return 0;
        if (answer.by == std::this_thread::get_id()) return i + 1;
    }
    return 0;
}

/// Of these, by this thread.
std::size_t read_inline(const std::vector<Received>& received) {
    return static_cast<std::size_t>(std::count_if(
        received.begin(), received.end(), [](const Received& one) { return one.by == std::this_thread::get_id(); }));
}

/// Turns of a thread with an echoing peer, until it has read an answer itself, and `turns` at least: on a busy machine
/// it may be long until they are quick enough for that. How many answers it read.
std::size_t take_turns(OwnClient& client, std::size_t turns) {
    WebSocketInlineReads waits(client.shared_socket());
    const SteadyTime latest = patience();
    std::size_t here = 0;
    for (std::size_t i = 0; i < turns || (here == 0 && real_clock().now() < latest); ++i) {
        client.send(kBinary, std::to_string(i));
        waits.before_wait([&] { return client.count() > i; });
        const Received answer = client.receive_one(i);
        if (answer.text != std::to_string(i)) throw std::runtime_error("answer " + std::to_string(i) + " is not right");
        if (answer.by == std::this_thread::get_id()) ++here;
    }
    return here;
}

TEST_CASE("a thread that waits reads in place of the running thread, which goes on when it stops", "[http]") {
    WebSocketServer server;
    OwnClient client(server.port());
    const bool at_once = GENERATE(false, true);
    const std::size_t count = exchange_until_read_inline(client);
    REQUIRE(count > 0);
    if (at_once) client.socket().stop_inline_reads();
    server.socket()->send(false, {part_of("unasked")});
    const auto received = client.receive(count + 1);
    REQUIRE(received.size() == count + 1);
    CHECK(received.back().text == "unasked");
    CHECK(received.back().by != std::this_thread::get_id());
}

/// The least time in which a message that nobody waits for came, after answers were read here, one after the other so
/// that the running thread surely waits for none, and `then` had run. As soon as that is less than a millisecond it is
/// no use to try again.
std::chrono::nanoseconds least_delay(WebSocketServer& server, OwnClient& client, const std::function<void()>& then) {
    auto least = std::chrono::nanoseconds::max();
    const SteadyTime latest = patience();
    for (int i = 0; i < 100 && least >= milliseconds(1); ++i) {
        std::size_t count = exchange_until_read_inline(client);
        for (int in_a_row = 0; in_a_row < 12 && count > 0;) {
            if (real_clock().now() > latest) return std::chrono::nanoseconds(0);  // so busy a machine tells nothing
            const std::size_t next = exchange_until_read_inline(client);
            in_a_row = next == count + 1 ? in_a_row + 1 : 0;
            count = next;
        }
        if (count == 0) break;
        const SteadyTime begin = real_clock().now();
        then();
        server.socket()->send(false, {part_of("unasked")});
        if (client.receive_one(count).text != "unasked") break;
        least = std::min(least, std::chrono::nanoseconds(real_clock().now() - begin));
    }
    return least;
}

TEST_CASE("the running thread reads again at once where it is asked to", "[http]") {
    WebSocketServer server;
    OwnClient client(server.port());
    CHECK(least_delay(server, client, [&] { client.socket().stop_inline_reads(); }) < milliseconds(1));
    CHECK(least_delay(server, client, [&] { WebSocketInlineReads gone(client.shared_socket()); }) < milliseconds(1));
}

TEST_CASE("a thread that reads here gives up soon, and the running thread goes on", "[http]") {
    WebSocketServer server;
    OwnClient client(server.port());
    for (int i = 0; i < 20; ++i)
        CHECK_FALSE(client.socket().read_inline(never));
    server.socket()->send(false, {part_of("unasked")});
    REQUIRE(client.receive(1).size() == 1);
    CHECK(client.receive(1).back().by != std::this_thread::get_id());
}

TEST_CASE("nobody reads here while the running thread hands a message over", "[http]") {
    Event began, go_on;
    WebSocketServer server;
    server.on_message = [&](net::WebSocket&, const net::WebSocketMessage&) {
        began.set();
        go_on.wait();
    };
    OwnClient client(server.port());
    client.send(kText, "hello");
    REQUIRE(began.wait());
    std::atomic<int> asked{0};
    const bool came = server.socket()->read_inline([&] { return ++asked > 0; });
    go_on.set();
    CHECK_FALSE(came);
    CHECK(asked == 0);
}

TEST_CASE("nothing is read here before the WebSocket runs and after its end", "[http]") {
    WebSocketServer server;
    BufferPool buffers;
    const auto socket = connect_to(endpoint_of(server.port()), buffers);
    CHECK_FALSE(socket->read_inline(never));
    server.socket()->close(CloseCode::going_away, "bye");
    std::atomic<int> messages{0};
    CHECK(socket->run([&](const net::WebSocketMessage&) { ++messages; }).code == CloseCode::going_away);
    CHECK_FALSE(socket->read_inline(never));
    CHECK(messages == 0);
}

TEST_CASE("an end that comes while a thread reads here ends the WebSocket as ever", "[http]") {
    enum class How { closed, cut, nonsense };
    const How how = GENERATE(How::closed, How::cut, How::nonsense);
    for (int i = 0; i < 20; ++i) {
        RawServer server;
        RawClient peer{UniqueFd()};
        std::jthread serve([&] { peer = accept_web_socket(server); });
        OwnClient client(server.port());
        serve.join();
        std::atomic<bool> ended{false};
        std::jthread reads([&] {
            while (!ended)
                client.socket().read_inline(never);
        });
        if (how == How::closed) peer.send(RawFrame{kClose, std::string("\x03\xe9", 2) + "bye", true, false}.bytes());
        if (how == How::nonsense) peer.send(std::string("\x83\x00", 2));
        if (how == How::cut) peer.close();
        const auto end = client.end();
        ended = true;
        CHECK(end.code == (how == How::closed     ? CloseCode::going_away
                           : how == How::nonsense ? CloseCode::protocol_error
                                                  : CloseCode::abnormal));
    }
}

TEST_CASE("what is thrown while a thread reads here leaves the running thread's run", "[http]") {
    const QuietLog quiet;
    WebSocketServer server;
    BufferPool buffers;
    const auto socket = connect_to(endpoint_of(server.port()), buffers);
    std::atomic<std::size_t> count{0};
    std::string thrown;
    std::atomic<bool> ended{false};
    std::jthread runs([&, reader = std::this_thread::get_id()] {
        try {
            socket->run([&](const net::WebSocketMessage&) {
                ++count;
                if (std::this_thread::get_id() == reader) throw std::runtime_error("of the reader");
            });
        } catch (const std::runtime_error& error) {
            thrown = error.what();
        }
        ended = true;
    });
    const SteadyTime latest = patience();
    for (std::size_t i = 0; !ended && real_clock().now() < latest; ++i) {
        socket->send(false, {part_of("?")});
        socket->read_inline([&] { return count > i; });
        eventually([&] { return count > i || ended; });
    }
    socket->abort();
    runs.join();
    CHECK(thrown == "of the reader");
    CHECK_FALSE(socket->send(false, {part_of("?")}));
    CHECK(server.end().code == CloseCode::abnormal);
}

TEST_CASE("a thread that takes turns with its peer reads for itself", "[http]") {
    WebSocketServer server;
    OwnClient client(server.port());
    CHECK(take_turns(client, 3000) > 0);
    CHECK(server.messages() == client.count());
}

TEST_CASE("what comes unasked is read by the running thread", "[http]") {
    WebSocketServer server;
    server.on_message = [](net::WebSocket& socket, const net::WebSocketMessage&) {
        for (int i = 0; i < 3000; ++i)
            socket.send(false, {part_of(std::to_string(i))});
    };
    OwnClient client(server.port());
    WebSocketInlineReads turns(client.shared_socket());
    client.send(kText, "go");
    for (std::size_t i = 0; i < 3000; ++i) {
        turns.before_wait([&] { return client.count() > i; });
        REQUIRE(client.receive(i + 1).size() > i);
    }
    CHECK(read_inline(client.receive(3000)) == 0);
}

TEST_CASE("where more than the answer comes, and where turns are slow, the running thread reads", "[http]") {
    const bool slow = GENERATE(false, true);
    const std::size_t answers = slow ? 1 : 2;
    WebSocketServer server;
    server.on_message = [&](net::WebSocket& socket, const net::WebSocketMessage&) {
        if (slow) std::this_thread::sleep_for(milliseconds(2));
        for (std::size_t i = 0; i < answers; ++i)
            socket.send(false, {part_of("answer")});
    };
    OwnClient client(server.port());
    WebSocketInlineReads turns(client.shared_socket());
    for (std::size_t i = 1; i <= 100; ++i) {
        client.send(kText, "?");
        turns.before_wait([&] { return client.count() >= i * answers; });
        REQUIRE(client.receive(i * answers).size() == i * answers);
    }
    CHECK(read_inline(client.receive(100 * answers)) == 0);
}

TEST_CASE("threads that take turns on one WebSocket at once all get their answers", "[http]") {
    constexpr std::size_t kThreads = 4, kTurns = 500;
    WebSocketServer server;
    BufferPool buffers;
    const auto socket = connect_to(endpoint_of(server.port()), buffers);
    std::array<Guarded<std::size_t>, kThreads> answers;
    std::jthread runs([&] {
        socket->run([&](const net::WebSocketMessage& message) {
            auto& mine = answers.at(static_cast<std::size_t>(message.text()[0] - '0'));
            mine.with([](std::size_t& count) { ++count; });
            mine.notify_all();
        });
    });
    std::atomic<std::size_t> whole{0};
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            WebSocketInlineReads turns(socket);
            for (std::size_t i = 0; i < kTurns; ++i) {
                socket->send(false, {part_of(std::to_string(t))});
                turns.before_wait([&] { return answers[t].with([&](std::size_t count) { return count > i; }); });
                if (!answers[t].lock().wait_until(patience(), [&](std::size_t count) { return count > i; })) return;
            }
            ++whole;
        });
    }
    threads.clear();
    CHECK(whole == kThreads);
    socket->close(CloseCode::normal, "");
}

TEST_CASE("a peer that pings, and takes turns, is answered", "[http]") {
    RawServer server;
    RawClient peer{UniqueFd()};
    std::jthread serve([&] { peer = accept_web_socket(server); });
    OwnClient client(server.port());
    serve.join();
    std::jthread plays([&] {
        for (int i = 0;; ++i) {
            if (read_raw_frame(peer).opcode != kBinary) return;
            peer.send(RawFrame{kPing, "ping", true, false}.bytes() +
                      RawFrame{kBinary, std::to_string(i), true, false}.bytes());
            const RawFrame pong = read_raw_frame(peer);
            if (pong.opcode != kPong || pong.payload != "ping") return peer.close();
        }
    });
    CHECK(take_turns(client, 1000) > 0);
    client.socket().abort();
}

}  // namespace
}  // namespace shared_tensor::test
