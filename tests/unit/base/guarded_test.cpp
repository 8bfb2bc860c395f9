#include "base/concurrency/guarded.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/event.hpp"

using namespace shared_tensor;
using shared_tensor::test::patience;

TEST_CASE("a guarded value is made from the arguments given", "[util][guarded]") {
    Guarded<std::string> text(std::size_t{3}, 'x');
    CHECK(text.with([](const std::string& value) { return value; }) == "xxx");
}

TEST_CASE("what is done under the lock returns its result, references included", "[util][guarded]") {
    Guarded<std::vector<int>> numbers(std::vector<int>{1, 2});
    static_assert(std::is_same_v<decltype(numbers.with([](auto& held) -> int& { return held[0]; })), int&>);
    CHECK(numbers.with([](const auto& held) { return held.size(); }) == 2);
}

TEST_CASE("a constant guarded value is read only", "[util][guarded]") {
    const Guarded<int> number(7);
    static_assert(std::is_same_v<decltype(number.with([](auto& held) -> auto& { return held; })), const int&>);
    CHECK(number.with([](int value) { return value; }) == 7);
}

TEST_CASE("changes from many threads are not lost", "[util][guarded]") {
    Guarded<int> count(0);
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&] {
                for (int i = 0; i < 1000; ++i) {
                    count.with([](int& value) { ++value; });
                    ++*count.lock();
                }
            });
        }
    }
    CHECK(*count.lock() == 8000);
}

TEST_CASE("a wait ends when the condition holds, whoever made it so", "[util][guarded]") {
    Guarded<int> number(0);
    std::jthread other([&] {
        for (int i = 1; i <= 3; ++i) {
            number.with([&](int& value) { value = i; });
            number.notify_all();
        }
    });
    auto access = number.lock();
    access.wait([](int value) { return value == 3; });
    CHECK(*access == 3);
}

TEST_CASE("a bounded wait says whether the condition holds", "[util][guarded]") {
    Guarded<bool> ready(false);
    CHECK_FALSE(ready.lock().wait_until(real_clock().now(), [](bool value) { return value; }));
    std::jthread other([&] {
        ready.with([](bool& value) { value = true; });
        ready.notify_one();
    });
    CHECK(ready.lock().wait_until(patience(), [](bool value) { return value; }));
}

TEST_CASE("a value that cannot be moved or copied can be guarded", "[util][guarded]") {
    Guarded<std::unique_ptr<int>> owner(std::make_unique<int>(5));
    CHECK(**owner.lock() == 5);
}
