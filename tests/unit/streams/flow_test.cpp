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

TEST_CASE("a writer may send while items and bytes are below the window, and the last item may go beyond",
          "[streams]") {
    SendWindow few({3, 100}), small({10, 100});
    for (int i = 0; i < 3; ++i) {
        REQUIRE(few.wait() == Room::free);
        few.sent(10);
    }
    CHECK(blocks(few));
    small.sent(99);
    REQUIRE(small.wait() == Room::free);
    small.sent(1'000'000);
    CHECK(blocks(small));
    SendWindow none({Window::kUnbounded, Window::kUnbounded});  // it remembers nothing
    for (int i = 0; i < 1000; ++i) {
        REQUIRE(none.wait() == Room::free);
        none.sent(1'000'000'000'000);
    }
    CHECK_FALSE(none.taken(1));
}

TEST_CASE("what was taken makes room, and its sender hears of it once", "[streams]") {
    SendWindow flow({2, 100});
    std::vector<int> taken;
    const auto send = [&](int i) { flow.sent(60, [&taken, i] { taken.push_back(i); }); };
    send(0);
    send(1);
    CHECK_FALSE(flow.taken(3));  // more than was sent
    CHECK(flow.taken(1));
    CHECK(taken == std::vector{0});
    CHECK(flow.wait() == Room::free);
    send(2);
    CHECK_FALSE(flow.taken(0));  // less than before
    CHECK(flow.taken(2));
    CHECK(flow.taken(2));
    CHECK(taken == std::vector{0, 1});
    flow.all_taken();
    flow.all_taken();
    CHECK(taken == std::vector{0, 1, 2});
}

TEST_CASE("an item beyond the window or after the end is rejected", "[streams]") {
    ReceiveQueue few({2, 100}), small({10, 100}), ended({10, 100});
    for (const Added added : {Added::kept, Added::kept, Added::rejected})
        CHECK(few.add(item(1)) == added);
    CHECK(small.add(item(1, 1'000'000)) == Added::kept);
    CHECK(small.add(item(2, 1)) == Added::rejected);
    CHECK(small.next().item);  // what was read is beyond no window
    for (const int cost : {99, 1})
        CHECK(small.add(item(3, static_cast<std::uint64_t>(cost))) == Added::kept);
    ended.end();
    CHECK(ended.add(item(1)) == Added::rejected);
}

TEST_CASE("the sender hears of every half window, and at its end of what was taken last", "[streams]") {
    ReceiveQueue flow({4, 1000}), by_bytes({1000, 100});
    std::vector<std::uint64_t> told;
    for (int i = 0; i < 9; ++i) {
        REQUIRE(flow.add(item(i)) == Added::kept);
        if (const auto taken = flow.next().taken) told.push_back(*taken);
    }
    CHECK(told == std::vector<std::uint64_t>{2, 4, 6, 8});
    flow.end();
    CHECK(flow.next().taken == 9);
    CHECK_FALSE(flow.next().taken);
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

TEST_CASE("a stream that is cut short has not ended though its sender said so, but one that ended before has",
          "[streams]") {
    ReceiveQueue ended({10, 100}), told_later({10, 100}), before({10, 100});
    ended.add(item(1));
    ended.end();
    CHECK(ended.close(false).size() == 1);
    CHECK(ended.next().closed);
    told_later.close(false);
    CHECK(told_later.add(item(1)) == Added::dropped);
    told_later.end();
    CHECK(told_later.next().closed);
    before.add(item(1));
    before.end();
    before.close(true);
    CHECK(before.next().item);
    CHECK_FALSE(before.next().closed);
}

}  // namespace
}  // namespace shared_tensor::test
