#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

#include "streams/ends.hpp"
#include "support/event.hpp"

namespace shared_tensor::test {
namespace {

using streams::Item;
using streams::ReceiveQueue;
using streams::SendWindow;
using streams::Window;
using Added = streams::ReceiveQueue::Added;
using Room = streams::SendWindow::Room;

Item item(int value, std::uint64_t cost = 1) { return {std::make_shared<const json_rpc::Json>(value), {}, {}, cost}; }

/// Whether wait() would block: asked by another thread, which is let go by close().
bool blocks(SendWindow& flow) {
    Event came;
    std::jthread waiting([&] {
        flow.wait();
        came.set();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const bool blocked = came.count() == 0;
    flow.close();
    return blocked;
}

TEST_CASE("a writer may send while items and bytes are below the window", "[streams]") {
    SendWindow flow({3, 100});
    for (int i = 0; i < 3; ++i) {
        REQUIRE(flow.wait() == Room::free);
        flow.sent(10);
    }
    CHECK(blocks(flow));
}

TEST_CASE("the last item may go beyond the bytes and no further one", "[streams]") {
    SendWindow flow({10, 100});
    flow.sent(99);
    REQUIRE(flow.wait() == Room::free);
    flow.sent(1'000'000);
    CHECK(blocks(flow));
}

TEST_CASE("what was taken makes room", "[streams]") {
    SendWindow flow({2, 100});
    flow.sent(60);
    flow.sent(60);
    CHECK(flow.taken(1));
    CHECK(flow.wait() == Room::free);
    flow.sent(1);
    CHECK(flow.taken(3));
    CHECK_FALSE(flow.taken(4));
}

TEST_CASE("a sender hears once of each item that was taken", "[streams]") {
    SendWindow flow({10, 100});
    std::vector<int> taken;
    for (int i = 0; i < 4; ++i)
        flow.sent(1, [&taken, i] { taken.push_back(i); });
    flow.taken(1);
    CHECK(taken == std::vector{0});
    flow.taken(3);
    CHECK(taken == std::vector{0, 1, 2});
    flow.all_taken();
    flow.all_taken();
    CHECK(taken == std::vector{0, 1, 2, 3});
}

TEST_CASE("a waiting writer is woken by room, by a stop and by the end", "[streams]") {
    for (const Room expected : {Room::free, Room::stopped, Room::over}) {
        SendWindow flow({1, 100});
        flow.sent(1);
        Room got{};
        {
            std::jthread waiting([&] { got = flow.wait(); });
            if (expected == Room::free) flow.taken(1);
            if (expected == Room::stopped) flow.stop();
            if (expected == Room::over) flow.close();
        }
        CHECK(got == expected);
    }
}

TEST_CASE("a reader that took more than was sent or less than before is rejected", "[streams]") {
    SendWindow flow({10, 100});
    flow.sent(1);
    flow.sent(1);
    CHECK_FALSE(flow.taken(3));
    CHECK(flow.taken(2));
    CHECK_FALSE(flow.taken(1));
    CHECK(flow.taken(2));
}

TEST_CASE("items come in order with their numbers and then the end", "[streams]") {
    ReceiveQueue flow({10, 100});
    CHECK(flow.add(item(5)) == Added::kept);
    CHECK(flow.add(item(6)) == Added::kept);
    flow.end();
    for (int i = 0; i < 2; ++i) {
        const auto next = flow.next();
        REQUIRE(next.item);
        CHECK(*next.item->value == 5 + i);
        CHECK(next.item->number == static_cast<std::uint64_t>(i));
    }
    for (int i = 0; i < 2; ++i) {
        const auto next = flow.next();
        CHECK_FALSE(next.item);
        CHECK_FALSE(next.closed);
    }
}

TEST_CASE("an item beyond the window or after the end is rejected", "[streams]") {
    ReceiveQueue few({2, 100}), small({10, 100});
    CHECK(few.add(item(1)) == Added::kept);
    CHECK(few.add(item(2)) == Added::kept);
    CHECK(few.add(item(3)) == Added::rejected);
    CHECK(small.add(item(1, 1'000'000)) == Added::kept);
    CHECK(small.add(item(2, 1)) == Added::rejected);
    ReceiveQueue ended({10, 100});
    ended.end();
    CHECK(ended.add(item(1)) == Added::rejected);
}

TEST_CASE("the sender hears of every half window", "[streams]") {
    ReceiveQueue flow({4, 1000});
    std::vector<std::uint64_t> told;
    for (int i = 0; i < 8; ++i) {
        REQUIRE(flow.add(item(i)) == Added::kept);
        if (const auto taken = flow.next().taken) told.push_back(*taken);
    }
    CHECK(told == std::vector<std::uint64_t>{2, 4, 6, 8});
    ReceiveQueue by_bytes({1000, 100});
    REQUIRE(by_bytes.add(item(1, 49)) == Added::kept);
    CHECK_FALSE(by_bytes.next().taken);
    REQUIRE(by_bytes.add(item(2, 1)) == Added::kept);
    CHECK(by_bytes.next().taken == 2);
}

TEST_CASE("a writer is never held up by a reader that has read everything", "[streams]") {
    for (const Window window : {Window{1, 1}, Window{1, 1000}, Window{3, 10}, Window{1024, 7}, Window{2, 64}}) {
        SendWindow out(window);
        ReceiveQueue in(window);
        for (int i = 0; i < 200; ++i) {
            const auto cost = static_cast<std::uint64_t>(1 + i * 7 % 23);
            REQUIRE(out.wait() == Room::free);
            out.sent(cost);
            REQUIRE(in.add(item(i, cost)) == Added::kept);
            const auto next = in.next();
            REQUIRE(next.item);
            if (next.taken) REQUIRE(out.taken(*next.taken));
        }
    }
}

TEST_CASE("the end of a call lets what came be read or not", "[streams]") {
    for (const bool then_read : {true, false}) {
        ReceiveQueue flow({10, 100});
        flow.add(item(1));
        flow.close(then_read);
        CHECK(flow.next().item.has_value() == then_read);
        CHECK(flow.next().closed);
        CHECK(flow.add(item(2)) == Added::dropped);  // it was on its way: nobody's fault
        CHECK(flow.next().closed);
    }
}

TEST_CASE("a stream that is cut short has not ended though its sender said so", "[streams]") {
    ReceiveQueue ended({10, 100}), told_later({10, 100});
    ended.add(item(1));
    ended.end();
    CHECK(ended.close(false).size() == 1);
    CHECK(ended.next().closed);
    told_later.close(false);
    CHECK(told_later.add(item(1)) == Added::dropped);
    told_later.end();
    CHECK(told_later.next().closed);
}

TEST_CASE("at its end the sender hears of what was taken last", "[streams]") {
    ReceiveQueue flow({100, 1000});
    flow.add(item(1));
    flow.add(item(2));
    flow.end();
    CHECK_FALSE(flow.next().taken);
    CHECK_FALSE(flow.next().taken);
    CHECK(flow.next().taken == 2);
    CHECK_FALSE(flow.next().taken);
}

TEST_CASE("a writer without a window remembers nothing", "[streams]") {
    SendWindow flow({Window::kUnbounded, Window::kUnbounded});
    for (int i = 0; i < 1000; ++i) {
        REQUIRE(flow.wait() == Room::free);
        flow.sent(1'000'000'000'000);
    }
    CHECK_FALSE(flow.taken(1));
}

TEST_CASE("a stream that ended before its call did has ended", "[streams]") {
    ReceiveQueue flow({10, 100});
    flow.add(item(1));
    flow.end();
    flow.close(true);
    CHECK(flow.next().item);
    CHECK_FALSE(flow.next().closed);
}

}  // namespace
}  // namespace shared_tensor::test
