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

#include "web_socket_peer.hpp"

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
        client.socket()->read_inline([&] { return client.count() > i; });
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

/// Of every size.
std::string text_of(std::size_t i) {
    return std::to_string(i) + std::string(i * 37 % 20'000, static_cast<char>('a' + i % 26));
}

/// Turns of a thread with an echoing peer, until it has read an answer itself, and `turns` at least: on a busy machine
/// it may be long until they are quick enough for that. How many answers it read.
std::size_t take_turns(OwnClient& client, std::size_t turns) {
    WebSocketInlineReads waits(client.socket());
    const SteadyTime latest = patience();
    std::size_t here = 0;
    for (std::size_t i = 0; i < turns || (here == 0 && real_clock().now() < latest); ++i) {
        client.send(kBinary, text_of(i));
        waits.before_wait([&] { return client.count() > i; });
        const Received answer = client.receive_one(i);
        if (answer.text != text_of(i)) throw std::runtime_error("answer " + std::to_string(i) + " is not right");
        if (answer.by == std::this_thread::get_id()) ++here;
    }
    return here;
}

TEST_CASE("a thread that waits reads in place of the running thread, which goes on when it stops or gives up",
          "[http]") {
    enum class Then { nothing, stops, gives_up };
    const Then then = GENERATE(Then::nothing, Then::stops, Then::gives_up);
    WebSocketServer server;
    OwnClient client(server.endpoint());
    const std::size_t count = exchange_until_read_inline(client);
    REQUIRE(count > 0);
    if (then == Then::stops) client.socket()->stop_inline_reads();
    for (int i = 0; i < 20 && then == Then::gives_up; ++i)
        CHECK_FALSE(client.socket()->read_inline(never));
    server.socket()->send(false, {part_of("unasked")});
    const auto received = client.receive(count + 1);
    REQUIRE(received.size() == count + 1);
    CHECK(received.back().text == "unasked");
    CHECK(received.back().by != std::this_thread::get_id());
}

/// The least time in which a message that nobody waits for came, after answers were read here, one after the other so
/// that the running thread surely waits for none, and `then` had run. As soon as that is less than a millisecond it is
/// no use to try again. Skips the test on a machine that is too busy for so many answers in a row.
std::chrono::nanoseconds least_delay(WebSocketServer& server, OwnClient& client, const std::function<void()>& then) {
    auto least = std::chrono::nanoseconds::max();
    const SteadyTime latest = patience();
    for (int i = 0; i < 100 && least >= milliseconds(1); ++i) {
        std::size_t count = exchange_until_read_inline(client);
        for (int in_a_row = 0; in_a_row < 12 && count > 0;) {
            if (real_clock().now() > latest) SKIP("a dozen answers in a row were never read here: the machine is busy");
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
    OwnClient client(server.endpoint());
    const auto stopped = least_delay(server, client, [&] { client.socket()->stop_inline_reads(); });
    CHECK(stopped < milliseconds(1));
    const auto gone = least_delay(server, client, [&] { WebSocketInlineReads waits(client.socket()); });
    CHECK(gone < milliseconds(1));
}

TEST_CASE("nobody reads here while the running thread hands a message over", "[http]") {
    Event began, go_on;
    WebSocketServer server;
    server.on_message = [&](net::WebSocket&, const net::WebSocketMessage&) {
        began.set();
        go_on.wait();
    };
    OwnClient client(server.endpoint());
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
    const auto socket = connect_to(server.endpoint(), buffers);
    CHECK_FALSE(socket->read_inline(never));
    server.socket()->close(CloseCode::going_away, "bye");
    std::atomic<int> messages{0};
    CHECK(socket->run([&](const net::WebSocketMessage&) { ++messages; }).code == CloseCode::going_away);
    CHECK_FALSE(socket->read_inline(never));
    CHECK(messages == 0);
}

TEST_CASE("an end that comes while a thread reads here ends the WebSocket as ever", "[http]") {
    const std::pair<std::string, CloseCode> table[] = {
        {RawFrame{kClose, "\x03\xe9 bye", true, false}.bytes(), CloseCode::going_away},
        {std::string("\x83\x00", 2), CloseCode::protocol_error},
        {"", CloseCode::abnormal},
    };
    for (const auto& [bytes, code] : table) {
        for (int i = 0; i < 20; ++i) {
            Duo duo({false, false});
            std::atomic<bool> ended{false};
            std::jthread reads([&] {
                while (!ended)
                    duo.socket().read_inline(never);
            });
            bytes.empty() ? duo.peer().close() : void(duo.peer().send(bytes));
            const auto end = duo.end();
            ended = true;
            CHECK(end.code == code);
        }
    }
}

TEST_CASE("what is thrown while a thread reads here leaves the running thread's run", "[http]") {
    const QuietLog quiet;
    WebSocketServer server;
    BufferPool buffers;
    const auto socket = connect_to(server.endpoint(), buffers);
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
    const bool has_tls = GENERATE(false, true);
    WebSocketServer server({}, {}, has_tls ? Over::tls : Over::tcp);
    OwnClient client(server.endpoint());
    CHECK(take_turns(client, has_tls ? 1000 : 3000) > 0);
    CHECK(server.messages() == client.count());
}

TEST_CASE("where more than the answer comes, and where turns are slow, the running thread reads", "[http]") {
    const struct {
        std::size_t questions, answers_to_each;
        milliseconds pause;
    } table[] = {{1, 3000, milliseconds(0)}, {100, 2, milliseconds(0)}, {100, 1, milliseconds(2)}};
    for (const auto& row : table) {
        WebSocketServer server({}, {}, Over::tcp, [&](net::WebSocket& socket, const net::WebSocketMessage&) {
            std::this_thread::sleep_for(row.pause);
            for (std::size_t i = 0; i < row.answers_to_each; ++i)
                socket.send(false, {part_of("answer")});
        });
        OwnClient client(server.endpoint());
        WebSocketInlineReads turns(client.socket());
        const std::size_t all = row.questions * row.answers_to_each;
        for (std::size_t i = 0; i < all; ++i) {
            if (i % row.answers_to_each == 0) client.send(kText, "?");
            turns.before_wait([&] { return client.count() > i; });
            REQUIRE(client.receive_one(i).text == "answer");
        }
        CHECK(read_inline(client.receive(all)) == 0);
    }
}

TEST_CASE("threads that take turns on one WebSocket at once all get their answers", "[http]") {
    constexpr std::size_t kThreads = 4, kTurns = 500;
    WebSocketServer server;
    BufferPool buffers;
    const auto socket = connect_to(server.endpoint(), buffers);
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
    RawServer listener;
    std::jthread plays([&] {
        RawClient peer = listener.accept();
        peer.send(web_socket_answer(peer));
        for (int i = 0;; ++i) {
            if (read_raw_frame(peer).opcode != kBinary) return;
            peer.send(RawFrame{kPing, "ping", true, false}.bytes() +
                      RawFrame{kBinary, text_of(static_cast<std::size_t>(i)), true, false}.bytes());
            const RawFrame pong = read_raw_frame(peer);
            if (pong.opcode != kPong || pong.payload != "ping") return peer.close();
        }
    });
    OwnClient client(net::Endpoint::parse("http://127.0.0.1:" + std::to_string(listener.port())));
    CHECK(take_turns(client, 1000) > 0);
    client.socket()->abort();
}

}  // namespace
}  // namespace shared_tensor::test
