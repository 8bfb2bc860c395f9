#include "local/segments/mapping.hpp"

#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <stdexcept>
#include <thread>
#include <vector>

#include "local/segments/segment.hpp"
#include "support/lost_memory.hpp"

using namespace shared_tensor;
using local::Mapping;
using local::MappingCache;
using local::Segment;

namespace {

struct Source {
    explicit Source(std::size_t pages = 1) : segment(pages * local::page_size()) {}
    std::unique_ptr<Mapping> take(MappingCache& cache) {
        return cache.take(segment.id(), [this] {
            ++asked;
            return MappingCache::Source{segment.descriptor(), segment.size()};
        });
    }
    Segment segment;
    int asked = 0;
};

}  // namespace

TEST_CASE("a mapping that came back is used again, its descriptor not asked for", "[shm]") {
    MappingCache cache;
    Source source;
    auto mapping = source.take(cache);
    const std::byte* data = mapping->data();
    CHECK(cache.use().used == 1);
    cache.put_back(source.segment.id(), std::move(mapping));
    CHECK(cache.use().used == 0);
    CHECK(cache.use().idle == 1);
    mapping = source.take(cache);
    CHECK(mapping->data() == data);
    CHECK(source.asked == 1);
    cache.put_back(source.segment.id(), std::move(mapping));
}

TEST_CASE("two tensors in one segment do not see each other's writes", "[shm]") {
    MappingCache cache;
    Source source;
    auto one = source.take(cache), two = source.take(cache);
    one->data()[0] = std::byte{1};
    CHECK(two->data()[0] == std::byte{0});
    const std::byte* where = one->data();
    cache.put_back(source.segment.id(), std::move(one));
    one = source.take(cache);
    CHECK(one->data() == where);
    CHECK(one->data()[0] == std::byte{0});
    CHECK(source.asked == 2);
}

TEST_CASE("the mappings of a segment that was given up go", "[shm]") {
    MappingCache cache;
    Source source;
    auto used = source.take(cache);
    cache.put_back(source.segment.id(), source.take(cache));
    cache.forget(source.segment.id());
    cache.forget("g-unknown");
    CHECK(cache.use().idle == 0);
    CHECK(cache.use().idle_bytes == 0);
    used->data()[0] = std::byte{1};  // still there
    cache.put_back(source.segment.id(), std::move(used));
    CHECK(cache.use().idle == 0);
    CHECK(cache.use().used == 0);
}

TEST_CASE("idle mappings are kept up to their bounds, those unused for longest go first", "[shm]") {
    const std::size_t page = local::page_size();
    MappingCache cache({4 * page, 3});
    std::deque<Source> sources;
    for (int i = 0; i < 5; ++i)
        sources.emplace_back();
    for (Source& source : sources)
        cache.put_back(source.segment.id(), source.take(cache));
    CHECK(cache.use().idle == 3);
    cache.put_back(sources[4].segment.id(), sources[4].take(cache));
    CHECK(sources[4].asked == 1);
    cache.put_back(sources[0].segment.id(), sources[0].take(cache));
    CHECK(sources[0].asked == 2);
    Source big(5);
    cache.put_back(big.segment.id(), big.take(cache));
    CHECK(cache.use().idle == 0);
    CHECK(cache.use().idle_bytes == 0);
}

TEST_CASE("a mapping that fails is not counted", "[shm]") {
    MappingCache cache;
    Source source;
    CHECK_THROWS_AS(cache.take("g-x", []() -> MappingCache::Source { throw std::runtime_error("x"); }),
                    std::runtime_error);
    CHECK_THROWS_AS(cache.take(source.segment.id(),
                               [&] {
                                   return MappingCache::Source{source.segment.descriptor(), 123};
                               }),
                    local::BadSegment);
    CHECK(cache.use().used == 0);
}

TEST_CASE("threads use mappings at once, and all is counted back", "[shm]") {
    MappingCache cache;
    Source source;
    {
        std::vector<std::jthread> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.emplace_back([&] {
                for (int i = 0; i < 200; ++i) {
                    auto mapping = cache.take(source.segment.id(), [&] {
                        return MappingCache::Source{source.segment.descriptor(), source.segment.size()};
                    });
                    if (mapping->data()[0] != std::byte{0}) throw std::logic_error("another's write");
                    mapping->data()[0] = std::byte{1};
                    cache.put_back(source.segment.id(), std::move(mapping));
                }
            });
        }
    }
    CHECK(cache.use().used == 0);
    CHECK(cache.use().idle <= 4);
}

TEST_CASE("a mapping whose memory failed is not kept", "[shm]") {
    handle_memory_faults();
    MappingCache cache;
    Source source;
    auto mapping = source.take(cache);
    mapping->survive_faults(std::make_shared<FaultCount>());
    test::lose_pages(mapping->data(), mapping->size());
    CHECK(static_cast<volatile std::byte&>(mapping->data()[0]) == std::byte{0});
    REQUIRE(mapping->is_broken());
    cache.put_back(source.segment.id(), std::move(mapping));
    CHECK(cache.use().idle == 0);
    CHECK(cache.use().used == 0);
    mapping = source.take(cache);
    CHECK(source.asked == 2);
    CHECK_FALSE(mapping->is_broken());
    cache.put_back(source.segment.id(), std::move(mapping));
}
