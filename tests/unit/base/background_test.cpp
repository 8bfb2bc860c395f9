#include "base/concurrency/background.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

using shared_tensor::Background;

TEST_CASE("work in the background is done in order, on a thread of its own", "[util]") {
    std::vector<int> done;
    std::atomic<bool> elsewhere{true};
    {
        Background background("test");
        for (int i = 0; i < 100; ++i) {
            background.post([&, i, poster = std::this_thread::get_id()] {
                if (std::this_thread::get_id() == poster) elsewhere = false;
                done.push_back(i);
            });
        }
    }
    REQUIRE(done.size() == 100);
    for (int i = 0; i < 100; ++i)
        CHECK(done[static_cast<std::size_t>(i)] == i);
    CHECK(elsewhere);
}

TEST_CASE("flush waits for what was posted before it", "[util]") {
    Background background("test");
    std::atomic<int> count{0};
    for (int i = 0; i < 10; ++i)
        background.post([&] { ++count; });
    background.flush();
    CHECK(count == 10);
}

TEST_CASE("work may post more work", "[util]") {
    std::atomic<int> count{0};
    {
        Background background("test");
        background.post([&] {
            ++count;
            background.post([&] { ++count; });
        });
    }
    CHECK(count == 2);
}

TEST_CASE("later work is done in its time, and at the end at the latest", "[util]") {
    std::vector<int> done;
    {
        Background background("test");
        std::promise<void> begin;
        background.post([&] { begin.get_future().wait(); });  // until all of them are there
        background.post_after(std::chrono::hours(1), [&] { done.push_back(3); });
        background.post_after(std::chrono::milliseconds(1), [&] { done.push_back(2); });
        background.post([&] { done.push_back(1); });
        std::promise<void> second;
        background.post_after(std::chrono::milliseconds(2), [&] { second.set_value(); });
        begin.set_value();
        second.get_future().wait();
        CHECK(done == std::vector<int>{1, 2});
    }
    CHECK(done == std::vector<int>{1, 2, 3});
}
