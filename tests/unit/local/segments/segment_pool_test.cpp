#include "local/segments/segment_pool.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/memory/heap.hpp"
#include "support/failing_memory.hpp"
#include "support/process.hpp"

using namespace shared_tensor;
using local::PooledSegmentPointer;
using local::SegmentPool;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::string id_of(const PooledSegmentPointer& place) { return place->segment().id(); }

}  // namespace

TEST_CASE("a segment that nobody holds any more is the next one of its size and principal", "[shm]") {
    SegmentPool pool;
    auto tensor = pool.take(kMiB, "uid:1");
    const std::string id = id_of(tensor);
    auto lease = tensor;
    tensor.reset();
    CHECK(pool.use().segments == 1);
    CHECK(pool.use().bytes == kMiB);
    lease.reset();
    CHECK(pool.use().segments == 0);
    CHECK(pool.use().bytes == 0);
    CHECK(pool.use().idle_segments == 1);
    CHECK(pool.use().idle_bytes == kMiB);
    CHECK(id_of(pool.take(kMiB, "uid:2")) != id);
    CHECK(id_of(pool.take(4 * kMiB, "uid:1")) != id);
    const auto again = pool.take(kMiB - 100, "uid:1");
    CHECK(id_of(again) == id);
    CHECK(id_of(pool.take(kMiB, "uid:1")) != id);
}

TEST_CASE("a segment that was sealed or is written to by others is found while it is in use, and never used again",
          "[shm]") {
    SegmentPool pool;
    const auto sharing = GENERATE(local::Sharing::read_only, local::Sharing::writable);
    auto segment = pool.take(kMiB, "uid:1", sharing);
    CHECK(segment->segment().sharing() == sharing);
    const std::string id = id_of(segment);
    CHECK(pool.find(segment->segment().data())->segment == segment);
    if (sharing == local::Sharing::read_only) REQUIRE(segment->seal());
    segment.reset();
    CHECK(pool.use().segments == 0);
    CHECK(pool.use().idle_segments == 0);
    CHECK(pool.take(kMiB, "uid:1")->segment().sharing() == local::Sharing::read_only);
    CHECK(id_of(pool.take(kMiB, "uid:1")) != id);
    CHECK(id_of(pool.take(kMiB, "uid:1", sharing)) != id);
}

TEST_CASE("a retired segment is used again, under another id, once nobody else has it", "[shm]") {
    std::vector<std::string> gone;
    SegmentPool pool({}, [&](const std::string& id) { gone.push_back(id); });
    auto segment = pool.take(kMiB, "uid:1");
    const std::string id = id_of(segment);
    const std::byte* const data = segment->data();
    auto reader = segment->segment().for_others();
    segment->retire();
    segment.reset();
    CHECK(gone == std::vector{id});
    CHECK(pool.use().idle_bytes == kMiB);
    CHECK(pool.take(kMiB, "uid:1")->data() != data);
    std::optional<local::Mapping> mapping(std::in_place, *reader, kMiB);
    reader.reset();
    const auto other = pool.take(kMiB, "uid:1"), another = pool.take(kMiB, "uid:1");
    CHECK(other->data() != data);
    CHECK(another->data() != data);
    mapping.reset();
    const auto again = pool.take(kMiB, "uid:1");
    CHECK(again->data() == data);
    CHECK(id_of(again) != id);
}

TEST_CASE("what others get of a segment is one open file as long as it is in use", "[shm]") {
    SegmentPool pool;
    const auto segment = pool.take(kMiB, "uid:1");
    const local::SegmentFile& file = segment->segment();
    auto one = file.for_others();
    CHECK(one != file.descriptor());
    CHECK(file.for_others() == one);
    one.reset();
    CHECK_FALSE(segment->segment().may_be_read());
    CHECK(file.for_others() != file.descriptor());
    const auto writable = pool.take(kMiB, "uid:1", local::Sharing::writable);
    CHECK(writable->segment().for_others() == writable->segment().descriptor());
    CHECK(writable->segment().may_be_read());
}

TEST_CASE("a retired segment of whose readers the kernel cannot tell is not used again", "[shm]") {
    SegmentPool pool;
    auto segment = pool.take(kMiB, "uid:1");
    const std::byte* const data = segment->data();
    CHECK_FALSE(segment->segment().may_be_read());
    {
        const test::NoMoreDescriptors none;
        CHECK(segment->segment().for_others() == segment->segment().descriptor());
    }
    CHECK(segment->segment().may_be_read());
    segment->retire();
    segment.reset();
    CHECK(pool.take(kMiB, "uid:1")->data() != data);
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

TEST_CASE("idle segments are kept up to their bound, those unused for longest go first, and the pool tells which went",
          "[shm]") {
    std::vector<std::string> gone;
    SegmentPool pool({8 * kMiB, 2 * kMiB, 100}, [&](const std::string& id) { gone.push_back(id); });
    auto one = pool.take(kMiB, "a"), two = pool.take(kMiB, "b"), three = pool.take(kMiB, "a"),
         big = pool.take(4 * kMiB, "a"), retired = pool.take(kMiB, "a");
    const std::string first = id_of(one), second = id_of(two), third = id_of(three), fourth = id_of(big),
                      fifth = id_of(retired);
    two.reset();
    one.reset();
    CHECK(gone.empty());
    three.reset();
    CHECK(gone == std::vector{second});
    CHECK(pool.use().idle_bytes == 2 * kMiB);
    big.reset();  // bigger than all that is kept
    CHECK(gone == std::vector{second, fourth});
    retired->retire();
    retired.reset();
    CHECK(gone == std::vector{second, fourth, fifth, first});
    const auto all = pool.take(8 * kMiB, "b");  // needs the room of all idle segments
    CHECK(gone == std::vector{second, fourth, fifth, first, third, fifth});
    CHECK(pool.use().idle_segments == 0);
    CHECK(pool.use().idle_bytes == 0);
}

TEST_CASE("beyond the limits a segment is bad_alloc, the limit is named, and idle ones of others make room", "[shm]") {
    const auto reason_of = [](SegmentPool& pool, std::size_t bytes) -> std::string {
        try {
            (void)pool.take(bytes, "b");
        } catch (const local::PoolFull& full) {
            return full.what();
        }
        return "";
    };
    SECTION("bytes") {
        SegmentPool pool({4 * kMiB, 4 * kMiB, 100});
        pool.take(2 * kMiB, "a").reset();
        auto one = pool.take(4 * kMiB, "b");
        CHECK(pool.use().idle_segments == 0);
        CHECK_THROWS_AS(pool.take(~std::size_t{0}, "b"), std::bad_alloc);
        CHECK(reason_of(pool, 1).find("--max-shared-bytes") != std::string::npos);
        CHECK(pool.full().empty());  // one of fewer bytes may fit
        CHECK(pool.use().segments == 1);
        one.reset();
        CHECK_NOTHROW(pool.take(1, "b"));
    }
    SECTION("number") {
        SegmentPool pool({64 * kMiB, 64 * kMiB, 2});
        pool.take(kMiB, "a").reset();
        CHECK(pool.full().empty());
        const auto one = pool.take(kMiB, "b"), two = pool.take(kMiB, "c");
        CHECK_THROWS_AS(pool.take(1, "b"), std::bad_alloc);
        CHECK(reason_of(pool, 1).find("--max-segments") != std::string::npos);
        CHECK(pool.full() == reason_of(pool, 1));
    }
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

TEST_CASE("a segment outlives its pool", "[shm]") {
    auto pool = std::make_unique<SegmentPool>();
    const auto segment = pool->take(kMiB, "uid:1");
    pool.reset();
    segment->segment().data()[0] = std::byte{1};
    CHECK(segment->segment().size() == kMiB);
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

TEST_CASE("a segment or a place that is used again shows no old bytes behind the new ones", "[shm]") {
    SegmentPool pool({.max_together = 64 << 10});
    const auto stays = pool.take_place(1000, "a");
    struct Row {
        std::size_t before, after, end;
    };
    for (const Row& row : {Row{kMiB, kMiB - 5000, kMiB}, Row{1000, 600, 1024}}) {
        auto place = pool.take_place(row.before, "a");
        std::byte* const data = place->data();
        std::memset(data, 7, row.before);
        place.reset();
        if (row.end == 1024) CHECK_FALSE(pool.find(data));
        place = pool.take_place(row.after, "a");
        CHECK(place->data() == data);
        CHECK(data[row.after - 1] == std::byte{7});
        CHECK(data[row.after] == std::byte{0});
        CHECK(data[row.end - 1] == std::byte{0});
    }
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

TEST_CASE("when a place is retired, its segment takes no further tensor", "[shm]") {
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

namespace {

/// What went wrong in a process that has used up its addresses, with 32 MiB of idle segments; 0 if nothing did.
int error_of_used_up_addresses() {
    SegmentPool pool({std::size_t{1} << 30, std::size_t{1} << 30, 100});
    const auto use_some = [&] {
        std::vector<local::PooledSegmentPointer> some;
        for (int i = 0; i < 4; ++i)
            some.push_back(pool.take(8 * kMiB, "a"));
    };
    use_some();
    test::leave_room(::getpid(), 2 * kMiB);
    if (!memory_is_short()) return 1;
    pool.take(12 * kMiB, "b").reset();
    if (pool.use().idle_segments != 1) return 2;
    pool.free_idle();
    if (pool.use().idle_segments != 0) return 3;
    return memory_is_short() ? 4 : 0;
}

}  // namespace

TEST_CASE("idle segments make room when there are no addresses", "[shm]") {
    if (!test::kAddressSpaceCanBeLimited) SKIP("a sanitizer needs address space of its own: it cannot be limited");
    CHECK(test::error_in_child(&error_of_used_up_addresses) == 0);
}
