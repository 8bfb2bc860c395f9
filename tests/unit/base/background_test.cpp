#include "base/concurrency/background.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

using shared_tensor::Background;

TEST_CASE("work in the background is done in order, on a thread of its own, and flush waits for it", "[util]") {
    std::vector<int> done, expected(100);
    std::iota(expected.begin(), expected.end(), 0);
    {
        Background background("test");
        bool elsewhere = true;
        for (int i = 0; i < 99; ++i) {
            background.post([&, i, poster = std::this_thread::get_id()] {
                if (std::this_thread::get_id() == poster) elsewhere = false;
                done.push_back(i);
            });
        }
        background.flush();
        CHECK(done.size() == 99);
        CHECK(elsewhere);
        background.post([&] { background.post([&] { done.push_back(99); }); });  // work may post more work
    }
    CHECK(done == expected);
}

TEST_CASE("later work is done in its time, and at the end at the latest", "[util]") {
    std::vector<int> done;
    {
        Background background("test");
        std::promise<void> begin, second;
        background.post([&] { begin.get_future().wait(); });  // until all of them are there
        background.post_after(std::chrono::hours(1), [&] { done.push_back(3); });
        background.post_after(std::chrono::milliseconds(1), [&] { done.push_back(2); });
        background.post([&] { done.push_back(1); });
        background.post_after(std::chrono::milliseconds(2), [&] { second.set_value(); });
        begin.set_value();
        second.get_future().wait();
        CHECK(done == std::vector<int>{1, 2});
    }
    CHECK(done == std::vector<int>{1, 2, 3});
}
