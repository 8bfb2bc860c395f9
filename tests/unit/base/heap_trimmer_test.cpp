#include "base/memory/heap.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

struct Tended {
    ManualClock clock;
    int trims = 0;
    HeapTrimmer trimmer{[this] { ++trims; }};

    /// After some more time.
    int sweep(std::chrono::seconds later, HeapTrimmer::Load load) {
        clock.advance(later);
        trimmer.sweep(load, clock.now());
        return trims;
    }
};

}  // namespace

TEST_CASE("the heap is trimmed once, five seconds after the last request", "[util]") {
    Tended heap;
    CHECK(heap.sweep(100s, {0, 0}) == 0);
    CHECK(heap.sweep(1s, {1, 1}) == 0);
    CHECK(heap.sweep(4s, {2, 1}) == 0);
    CHECK(heap.sweep(4s, {2, 1}) == 0);
    CHECK(heap.sweep(1s, {2, 1}) == 1);
    CHECK(heap.sweep(100s, {2, 1}) == 1);
}

TEST_CASE("requests that go on don't keep the heap from being trimmed when threads end", "[util]") {
    Tended heap;
    CHECK(heap.sweep(1s, {100, 50}) == 0);
    CHECK(heap.sweep(1s, {200, 49}) == 1);
    CHECK(heap.sweep(1s, {300, 20}) == 1);
    CHECK(heap.sweep(8s, {400, 20}) == 1);
    CHECK(heap.sweep(1s, {500, 20}) == 2);
    CHECK(heap.sweep(20s, {600, 20}) == 2);
}
