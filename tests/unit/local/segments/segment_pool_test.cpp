#include "local/segments/segment_pool.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "support/failing_memory.hpp"

using namespace shared_tensor;
using local::PooledSegmentPointer;
using local::SegmentPool;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

}  // namespace

TEST_CASE("a returned segment is the next one of its size and principal", "[shm]") {
    SegmentPool pool;
    const std::string id = pool.take(kMiB, "uid:1")->segment().id();
    CHECK(pool.use().segments == 0);
    CHECK(pool.use().idle_segments == 1);
    CHECK(pool.take(kMiB, "uid:2")->segment().id() != id);
    CHECK(pool.take(4 * kMiB, "uid:1")->segment().id() != id);
    const auto again = pool.take(kMiB - 100, "uid:1");
    CHECK(again->segment().id() == id);
    CHECK(pool.take(kMiB, "uid:1")->segment().id() != id);
}

TEST_CASE("a retired segment is never used again", "[shm]") {
    SegmentPool pool;
    auto segment = pool.take(kMiB, "uid:1");
    const std::string id = segment->segment().id();
    segment->retire();
    segment.reset();
    CHECK(pool.use().idle_segments == 0);
    CHECK(pool.take(kMiB, "uid:1")->segment().id() != id);
}

TEST_CASE("a segment is in use while anybody holds it", "[shm]") {
    SegmentPool pool;
    auto tensor = pool.take(kMiB, "uid:1");
    auto lease = tensor;
    tensor.reset();
    CHECK(pool.use().segments == 1);
    CHECK(pool.use().bytes == kMiB);
    lease.reset();
    CHECK(pool.use().segments == 0);
    CHECK(pool.use().bytes == 0);
    CHECK(pool.use().idle_bytes == kMiB);
}

TEST_CASE("an address leads to its segment while that is in use", "[shm]") {
    SegmentPool pool;
    auto one = pool.take(kMiB, "uid:1"), two = pool.take(2 * kMiB, "uid:1");
    const auto* data = two->segment().data();
    const auto place = pool.find(data + 4711);
    REQUIRE(place);
    CHECK(place->segment == two);
    CHECK(place->offset == 4711);
    CHECK(pool.find(data)->offset == 0);
    CHECK(pool.find(data + two->segment().size() - 1)->segment == two);
    const auto after = pool.find(data + two->segment().size());
    CHECK((!after || after->segment == one));
    int local = 0;
    CHECK_FALSE(pool.find(&local));
    CHECK_FALSE(pool.find(nullptr));
    const auto kept = place->segment;
    two.reset();
    CHECK(pool.find(data));
    const auto* idle = pool.take(4 * kMiB, "uid:1")->segment().data();
    CHECK_FALSE(pool.find(idle));
}

TEST_CASE("idle segments are kept up to their bound, those unused for longest go first", "[shm]") {
    SegmentPool pool({64 * kMiB, 2 * kMiB, 100});
    auto one = pool.take(kMiB, "a"), two = pool.take(kMiB, "b"), three = pool.take(kMiB, "a");
    const std::string first = one->segment().id(), second = two->segment().id(), third = three->segment().id();
    two.reset();
    one.reset();
    three.reset();
    CHECK(pool.use().idle_bytes == 2 * kMiB);
    CHECK(pool.take(kMiB, "b")->segment().id() != second);
    auto big = pool.take(4 * kMiB, "a");
    big.reset();
    CHECK(pool.use().idle_bytes <= 2 * kMiB);
    pool.trim();
    CHECK(pool.use().idle_segments == 0);
    CHECK(pool.use().idle_bytes == 0);
}

TEST_CASE("beyond the limits a segment is bad_alloc, and idle ones of others make room", "[shm]") {
    SECTION("bytes") {
        SegmentPool pool({4 * kMiB, 4 * kMiB, 100});
        pool.take(2 * kMiB, "a").reset();
        auto one = pool.take(4 * kMiB, "b");
        CHECK(pool.use().idle_segments == 0);
        CHECK_THROWS_AS(pool.take(1, "b"), std::bad_alloc);
        CHECK_THROWS_AS(pool.take(~std::size_t{0}, "b"), std::bad_alloc);
        CHECK(pool.use().segments == 1);
        one.reset();
        CHECK_NOTHROW(pool.take(1, "b"));
    }
    SECTION("number") {
        SegmentPool pool({64 * kMiB, 64 * kMiB, 2});
        pool.take(kMiB, "a").reset();
        const auto one = pool.take(kMiB, "b"), two = pool.take(kMiB, "c");
        CHECK_THROWS_AS(pool.take(1, "b"), std::bad_alloc);
    }
}

TEST_CASE("the pool tells which segments went back to the system", "[shm]") {
    std::vector<std::string> gone;
    SegmentPool pool({8 * kMiB, 2 * kMiB, 100}, [&](const std::string& id) { gone.push_back(id); });
    auto one = pool.take(kMiB, "a"), two = pool.take(4 * kMiB, "a"), three = pool.take(kMiB, "a");
    const std::string first = one->segment().id(), second = two->segment().id(), third = three->segment().id();
    one.reset();
    CHECK(gone.empty());
    two.reset();  // bigger than all that is kept
    CHECK(gone == std::vector{second});
    three->retire();
    three.reset();
    CHECK(gone == std::vector{second, third});
    pool.trim();
    CHECK(gone == std::vector{second, third, first});
}

TEST_CASE("a segment that there is no memory to keep goes back to the system, and this is told", "[shm]") {
    for (std::size_t number = 0; number < 4; ++number) {
        std::size_t gone = 0;
        SegmentPool pool({}, [&](const std::string&) { ++gone; });
        auto segment = pool.take(kMiB, "a principal whose name is not short");
        {
            const test::FailingMemory failing(number);
            segment.reset();
        }
        CHECK(gone + pool.use().idle_segments == 1);
        CHECK(pool.use().segments == 0);
    }
}

TEST_CASE("a segment that is used again shows no old bytes behind the new ones", "[shm]") {
    SegmentPool pool;
    auto segment = pool.take(kMiB, "a");
    std::memset(segment->segment().data(), 7, kMiB);
    segment.reset();
    segment = pool.take(kMiB - 5000, "a");
    const std::byte* data = segment->segment().data();
    CHECK(data[kMiB - 5001] == std::byte{7});
    CHECK(data[kMiB - 5000] == std::byte{0});
    CHECK(data[kMiB - 1] == std::byte{0});
}

TEST_CASE("a segment outlives its pool", "[shm]") {
    auto pool = std::make_unique<SegmentPool>();
    const auto segment = pool->take(kMiB, "uid:1");
    pool.reset();
    segment->segment().data()[0] = std::byte{1};
    CHECK(segment->segment().size() == kMiB);
}

TEST_CASE("a segment that others may write to is never used again", "[shm]") {
    local::SegmentPool pool;
    std::string id;
    {
        const auto segment = pool.take(100, "me", local::Sharing::writable);
        CHECK(segment->segment().sharing() == local::Sharing::writable);
        id = segment->segment().id();
        CHECK(pool.find(segment->segment().data()).has_value());
    }
    CHECK(pool.use().segments == 0);
    CHECK(pool.use().idle_segments == 0);
    CHECK(pool.take(100, "me")->segment().sharing() == local::Sharing::read_only);
    CHECK(pool.take(100, "me", local::Sharing::writable)->segment().id() != id);
}

TEST_CASE("small places of one principal lie in one segment, with a descriptor for all of them", "[shm]") {
    SegmentPool pool({.max_together = 64 << 10});
    const auto one = pool.take_place(1000, "uid:1"), two = pool.take_place(600, "uid:1");
    CHECK(one->whole() == two->whole());
    CHECK(one->segment().id() == two->segment().id());
    CHECK(two->offset() == one->offset() + 1024);
    CHECK(pool.use().segments == 1);
    const auto found = pool.find(two->data() + 5);
    REQUIRE(found);
    CHECK(found->segment == two);
    CHECK(found->offset == two->offset() + 5);
    CHECK(pool.take_place(1000, "uid:2")->segment().id() != one->segment().id());
    CHECK(pool.take_place((64 << 10) + 1, "uid:1")->offset() == 0);
    CHECK(pool.take(1000, "uid:1")->whole() != one->whole());
}

TEST_CASE("a place is used again, and shows no old bytes behind the new ones", "[shm]") {
    SegmentPool pool({.max_together = 64 << 10});
    const auto stays = pool.take_place(1000, "uid:1");
    auto place = pool.take_place(1000, "uid:1");
    std::byte* const data = place->data();
    std::memset(data, 7, 1000);
    place.reset();
    CHECK_FALSE(pool.find(data));
    place = pool.take_place(600, "uid:1");
    CHECK(place->data() == data);
    CHECK(data[599] == std::byte{7});
    CHECK(data[600] == std::byte{0});
    CHECK(data[1023] == std::byte{0});
}

TEST_CASE("a segment with places goes back with the last of them", "[shm]") {
    SegmentPool pool({.max_together = 64 << 10});
    std::vector<PooledSegmentPointer> places;
    for (int i = 0; i < 1000; ++i)
        places.push_back(pool.take_place(4096, "uid:1"));
    const std::size_t segments = pool.use().segments;
    CHECK(segments == 63);  // of 16 places each
    for (std::size_t i = 1; i < places.size(); ++i)
        places[i].reset();
    CHECK(pool.use().segments == 1);
    places.clear();
    CHECK(pool.use().segments == 0);
    CHECK(pool.use().idle_segments == 63);
}

TEST_CASE("when a place is retired, its segment is never used again", "[shm]") {
    std::vector<std::string> gone;
    SegmentPool pool({.max_together = 64 << 10}, [&](const std::string& id) { gone.push_back(id); });
    auto one = pool.take_place(1000, "uid:1"), two = pool.take_place(1000, "uid:1");
    const std::string id = one->segment().id();
    one->retire();
    one.reset();
    CHECK(pool.take_place(1000, "uid:1")->segment().id() != id);
    CHECK(gone.empty());
    two.reset();
    CHECK(gone == std::vector{id});
}

TEST_CASE("threads take and return places at once, and all is counted back", "[shm]") {
    SegmentPool pool({.max_together = 64 << 10});
    {
        std::vector<std::jthread> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.emplace_back([&] {
                std::vector<PooledSegmentPointer> held;
                for (int i = 0; i < 2000; ++i) {
                    held.push_back(pool.take_place(256U << (i % 4), i % 2 == 0 ? "a" : "b"));
                    *held.back()->data() = std::byte{1};
                    if (!pool.find(held.back()->data())) throw std::logic_error("not found");
                    if (i % 97 == 0) held.back()->retire();
                    if (held.size() > 50) held.erase(held.begin(), held.begin() + 25);
                }
            });
        }
    }
    CHECK(pool.use().segments == 0);
    CHECK(pool.use().bytes == 0);
}

TEST_CASE("the limit that was reached is named", "[shm]") {
    const auto reason_of = [](SegmentPool& pool) -> std::string {
        try {
            (void)pool.take(kMiB, "a");
        } catch (const local::PoolFull& full) {
            return full.what();
        }
        return "";
    };
    SegmentPool few({.max_segments = 2}), small({.max_bytes = 2 * kMiB});
    CHECK(few.full().empty());
    const auto one = few.take(kMiB, "a"), two = few.take(kMiB, "a");
    CHECK(reason_of(few).find("--max-segments") != std::string::npos);
    CHECK(few.full() == reason_of(few));
    const auto three = small.take(2 * kMiB, "a");
    CHECK(reason_of(small).find("--max-shared-bytes") != std::string::npos);
    CHECK(small.full().empty());  // one of fewer bytes may fit
}

TEST_CASE("a sealed segment is found while it is in use, and never used for other bytes", "[shm]") {
    SegmentPool pool;
    auto segment = pool.take(kMiB, "a");
    const auto* data = segment->segment().data();
    const std::string id = segment->segment().id();
    REQUIRE(segment->seal());
    CHECK(pool.find(data)->segment == segment);
    segment.reset();
    CHECK(pool.use().idle_segments == 0);
    CHECK(pool.take(kMiB, "a")->segment().id() != id);
}
