#include "base/concurrency/guarded.hpp"

#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

#include "support/event.hpp"

using namespace shared_tensor;
using shared_tensor::test::patience;

TEST_CASE("changes from many threads are not lost", "[util][guarded]") {
    Guarded<int> count(0);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 1000; ++i) {
                count.with([](int& value) { ++value; });
                ++*count.lock();
            }
        });
    }
    threads.clear();
    CHECK(*count.lock() == 8000);
}

TEST_CASE("a wait ends when the condition holds, a bounded one says whether it does", "[util][guarded]") {
    Guarded<int> number(0);
    const auto is_3 = [](int value) { return value == 3; };
    CHECK_FALSE(number.lock().wait_until(real_clock().now(), is_3));
    std::jthread other([&] {
        for (int i = 1; i <= 3; ++i) {
            number.with([&](int& value) { value = i; });
            number.notify_all();
        }
    });
    number.lock().wait(is_3);
    CHECK(number.lock().wait_until(patience(), is_3));
}
