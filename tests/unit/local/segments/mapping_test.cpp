// Segments of shared memory and their mappings in other processes: who sees what, and what is rejected.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <thread>
#include <vector>

#include "local/segments/segment.hpp"
#include "support/lost_memory.hpp"

using namespace shared_tensor;
using Catch::Matchers::ContainsSubstring;
using local::BadSegment;
using local::Mapping;
using local::MappingCache;
using local::PageTable;
using local::Segment;
using local::Sharing;

namespace {

const std::size_t kPage = local::page_size();

/// A segment of ones and our mapping of it.
struct Mapped {
    explicit Mapped(std::size_t pages) : segment(pages * kPage), mapping(*segment.descriptor(), pages * kPage) {
        fill(1);
    }
    void fill(int byte) const { std::memset(segment.data(), byte, segment.size()); }
    std::byte& at(std::size_t page) const { return mapping.data()[page * kPage + 5]; }
    void check_is_one(std::size_t pages) const {
        for (std::size_t page = 0; page < pages; ++page)
            if (at(page) != std::byte{1}) FAIL("page " << page);
    }
    const Segment segment;
    const Mapping mapping;
};

std::byte byte_in(const Segment& segment, std::size_t offset) {
    std::byte there{};
    CHECK(::pread(segment.descriptor()->get(), &there, 1, static_cast<off_t>(offset)) == 1);
    return there;
}

UniqueFd memory(std::size_t bytes, bool allocated = true, int seals = local::kSeals, unsigned flags = 0) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
    if (!fd) SKIP("this kernel has no huge pages");
    REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
    if (allocated && bytes > 0) REQUIRE(::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) == 0);
    if (seals != 0) REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
    return fd;
}

/// A cache and the segment whose mappings it keeps.
struct Source {
    explicit Source(std::size_t pages = 1) : segment(pages * kPage) {}
    std::unique_ptr<Mapping> take(MappingCache& cache) {
        return cache.take(segment.id(), [this] {
            ++asked;
            return MappingCache::Source{segment.descriptor(), segment.size()};
        });
    }
    Segment segment;
    std::atomic<int> asked = 0;
};

/// What this kernel has; reading is the last resort of all.
std::vector<PageTable> page_tables() {
    if (local::best_page_table() == PageTable::scanned) return {PageTable::scanned, PageTable::read};
    return {PageTable::read};
}

}  // namespace

TEST_CASE("segments have random names and whole pages, and no room for one is bad_alloc", "[shm]") {
    const Segment one(kPage), two(kPage);
    CHECK(one.id().starts_with("g-"));
    CHECK(one.id().size() == 2 + 32);
    CHECK(one.id() != two.id());
    CHECK_THROWS_AS(Segment(0), std::logic_error);
    CHECK_THROWS_AS(Segment(kPage + 1), std::logic_error);
    CHECK_THROWS_AS(Segment(std::size_t{1} << 46), std::bad_alloc);
}

TEST_CASE("nobody but its maker can write, cut or punch a segment, and once it is sealed nobody at all", "[shm]") {
    Segment segment(2 * kPage);
    const int fd = segment.descriptor()->get();
    const bool sealed = GENERATE(false, true);
    std::memset(segment.data(), 7, segment.size());
    if (sealed) REQUIRE(segment.seal());
    CHECK(::fcntl(fd, F_GET_SEALS) == (sealed ? local::kSeals | local::kFinalSeals : local::kSeals));
    CHECK(::mmap(nullptr, segment.size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    CHECK(::write(fd, "x", 1) == -1);
    CHECK(::ftruncate(fd, 0) == -1);
    CHECK(::ftruncate(fd, static_cast<off_t>(4 * kPage)) == -1);
    CHECK(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(kPage)) == -1);
    CHECK(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1);
    segment.data()[5] = std::byte{9};
    CHECK(byte_in(segment, 5) == std::byte(sealed ? 7 : 9));
    if (sealed) CHECK(segment.seal());
}

TEST_CASE("a writable segment is written to by all who mapped it as such, and neither cut nor sealed", "[shm]") {
    Segment segment(kPage, Sharing::writable);
    const Segment own(kPage);
    const Mapping one(*segment.descriptor(), kPage, Sharing::writable);
    const Mapping two(*segment.descriptor(), kPage, Sharing::writable);
    one.data()[5] = std::byte{7};
    CHECK(two.data()[5] == std::byte{7});
    CHECK(segment.data()[5] == std::byte{7});
    one.forget_writes();
    CHECK(one.forget_writes_if_cheap());
    CHECK(one.data()[5] == std::byte{7});
    CHECK_FALSE(segment.seal());
    segment.data()[5] = std::byte{8};
    CHECK(byte_in(segment, 5) == std::byte{8});
    const int fd = segment.descriptor()->get();
    CHECK(::ftruncate(fd, 0) != 0);
    CHECK(::ftruncate(fd, static_cast<off_t>(2 * kPage)) != 0);
    CHECK(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
    CHECK_THROWS(Mapping(*own.descriptor(), kPage, Sharing::writable));
    CHECK_THROWS_AS(Mapping(*segment.descriptor(), kPage), BadSegment);
    CHECK(is_guarded(segment.data()));  // others may punch holes into it
    CHECK_FALSE(is_guarded(own.data()));
}

TEST_CASE("a mapping shows what the maker writes, keeps its own writes and outlives the maker", "[shm]") {
    auto segment = std::make_unique<Segment>(4 * kPage);
    segment->data()[0] = std::byte{1};
    const Mapping mapping(*segment->descriptor(), segment->size()), other(*segment->descriptor(), segment->size());
    CHECK(mapping.data()[0] == std::byte{1});
    segment->data()[0] = segment->data()[4 * kPage - 1] = std::byte{2};
    CHECK(mapping.data()[0] == std::byte{2});
    CHECK(mapping.data()[4 * kPage - 1] == std::byte{2});
    mapping.data()[0] = std::byte{9};
    CHECK(other.data()[0] == std::byte{2});
    CHECK(segment->data()[0] == std::byte{2});
    segment.reset();
    CHECK(mapping.data()[0] == std::byte{9});
    CHECK(other.data()[0] == std::byte{2});
}

TEST_CASE("what could end in SIGBUS is rejected", "[shm]") {
    const std::size_t bytes = 4 * kPage;
    CHECK_NOTHROW(Mapping(memory(bytes), bytes));
    CHECK_THROWS_WITH(Mapping(memory(bytes, true, 0), bytes), ContainsSubstring("sealed"));
    for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE})
        CHECK_THROWS_WITH(Mapping(memory(bytes, true, local::kSeals & ~missing), bytes), ContainsSubstring("sealed"));
    CHECK_THROWS_WITH(Mapping(memory(bytes, false), bytes), ContainsSubstring("fallocate"));
    CHECK_THROWS_WITH(Mapping(memory(bytes), bytes + kPage), ContainsSubstring("size"));
    CHECK_THROWS_WITH(Mapping(memory(bytes), bytes - kPage), ContainsSubstring("size"));
    CHECK_THROWS_WITH(Mapping(memory(0), 0), ContainsSubstring("whole pages"));
    CHECK_THROWS_WITH(Mapping(memory(100), 100), ContainsSubstring("whole pages"));
    for (const std::size_t beyond : {kPage, 2 * kPage, 8 * kPage}) {  // does not stand for the missing pages
        UniqueFd fd = memory(bytes, false, 0);
        REQUIRE(::fallocate(fd.get(), 0, static_cast<off_t>(2 * kPage), static_cast<off_t>(2 * kPage)) == 0);
        REQUIRE(::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(bytes), static_cast<off_t>(beyond)) == 0);
        REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, local::kSeals) == 0);
        CHECK_THROWS_WITH(Mapping(fd, bytes), ContainsSubstring("fallocate"));
    }
    CHECK_NOTHROW(Mapping(memory(bytes), bytes, Sharing::read_only, local::Sender::trusted));
    CHECK_THROWS_WITH(Mapping(memory(bytes, false), bytes, Sharing::read_only, local::Sender::trusted),
                      ContainsSubstring("fallocate"));
    UniqueFd holes = memory(bytes, false, 0);  // which others may make in memory that they may write to
    REQUIRE(::fallocate(holes.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(bytes), static_cast<off_t>(bytes)) == 0);
    REQUIRE(::fcntl(holes.get(), F_ADD_SEALS, local::kWritableSeals) == 0);
    CHECK_THROWS_WITH(Mapping(holes, bytes, Sharing::writable, local::Sender::trusted), ContainsSubstring("fallocate"));
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const UniqueFd in(ends[0]), out(ends[1]), good = memory(kPage);
    const UniqueFd write_only(::open(("/proc/self/fd/" + std::to_string(good.get())).c_str(), O_WRONLY | O_CLOEXEC));
    REQUIRE(write_only);
    const UniqueFd device(::open("/dev/zero", O_RDWR)), file(::open("/proc/self/exe", O_RDONLY));
    for (const UniqueFd* const one : {&write_only, &device, &file, &in})
        CHECK_THROWS_AS(Mapping(*one, kPage), BadSegment);
    CHECK_THROWS_AS(Mapping(UniqueFd(), kPage), BadSegment);
}

TEST_CASE("memory in huge pages is rejected", "[shm]") {
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    CHECK_THROWS_WITH(Mapping(memory(kHuge, false, local::kSeals, MFD_HUGETLB), kHuge),
                      ContainsSubstring("MFD_HUGETLB"));
}

TEST_CASE("a mapping that came back is used again without its writes, and two in use do not see each other's",
          "[shm]") {
    MappingCache cache;
    Source source;
    auto one = source.take(cache), two = source.take(cache);
    CHECK(cache.use().used == 2);
    one->data()[0] = std::byte{1};
    CHECK(two->data()[0] == std::byte{0});
    const std::byte* where = one->data();
    cache.put_back(source.segment.id(), std::move(one));
    CHECK(cache.use().used == 1);
    CHECK(cache.use().idle == 1);
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
    MappingCache cache({4 * kPage, 3});
    std::deque<Source> sources;
    for (int i = 0; i < 5; ++i)
        sources.emplace_back();
    const auto use = [&](Source& source) {
        cache.put_back(source.segment.id(), source.take(cache));
        return source.asked.load();
    };
    for (Source& source : sources)
        use(source);
    CHECK(cache.use().idle == 3);
    CHECK(use(sources[4]) == 1);
    CHECK(use(sources[0]) == 2);
    Source big(5);
    use(big);
    CHECK(cache.use().idle == 0);
    CHECK(cache.use().idle_bytes == 0);
}

TEST_CASE("a mapping that fails is not counted, and one whose memory failed is not kept", "[shm]") {
    handle_memory_faults();
    MappingCache cache;
    Source source;
    CHECK_THROWS_AS(cache.take("g-x", []() -> MappingCache::Source { throw std::runtime_error("x"); }),
                    std::runtime_error);
    CHECK_THROWS_AS(cache.take(source.segment.id(),
                               [&] {
                                   return MappingCache::Source{source.segment.descriptor(), 123};
                               }),
                    BadSegment);
    CHECK(cache.use().used == 0);
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
}

TEST_CASE("threads use mappings at once, and all is counted back", "[shm]") {
    MappingCache cache;
    Source source;
    {
        std::vector<std::jthread> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.emplace_back([&] {
                for (int i = 0; i < 200; ++i) {
                    auto mapping = source.take(cache);
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

TEST_CASE("pages that were only read stay warm when writes are forgotten", "[shm]") {
    const Mapped one(64);
    one.check_is_one(64);
    one.at(0) = std::byte{9};
    one.mapping.forget_writes();
    rusage before{}, after{};
    ::getrusage(RUSAGE_THREAD, &before);
    for (std::size_t page = 1; page < 64; ++page)
        if (one.at(page) != std::byte{1}) FAIL("wrong byte");
    ::getrusage(RUSAGE_THREAD, &after);
    CHECK(after.ru_minflt == before.ru_minflt);
    one.check_is_one(64);
}

TEST_CASE("all written pages are dropped, however they lie; few at once, and much that was touched is no promise",
          "[shm]") {
    for (const PageTable how : page_tables()) {
        const std::size_t pages = 1 << 16;
        const Mapped few(pages), many(pages), touched(4096);
        for (const std::size_t page : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64},
                                       std::size_t{8191}, std::size_t{8192}, std::size_t{8193}, pages - 1})
            few.at(page) = many.at(page) = std::byte{9};
        for (std::size_t page = 0; page < 2000; page += 2)  // more stretches than one look can name
            many.at(page) = std::byte{9};
        CHECK(local::drop_written_pages_if_few(few.mapping.data(), few.mapping.size(), how));
        few.check_is_one(pages);
        local::drop_written_pages(many.mapping.data(), many.mapping.size(), how);
        many.check_is_one(pages);
        touched.check_is_one(4096);
        touched.at(4095) = std::byte{9};
        CHECK_FALSE(local::drop_written_pages_if_few(touched.mapping.data(), touched.mapping.size(), how));
    }
}

TEST_CASE("many short stretches are no few pages", "[shm]") {
    if (local::best_page_table() != PageTable::scanned) SKIP("this kernel has no PAGEMAP_SCAN");
    const Mapped one(4096);
    for (std::size_t page = 0; page < 4096; page += 64)
        one.at(page) = std::byte{9};
    CHECK_FALSE(local::drop_written_pages_if_few(one.mapping.data(), one.mapping.size(), PageTable::scanned));
    local::drop_written_pages(one.mapping.data(), one.mapping.size(), PageTable::scanned);
    one.check_is_one(4096);
}

TEST_CASE("pages that were made this process's own show nothing that is written to the file later", "[shm]") {
    const auto own = GENERATE(&local::own_pages, &local::own_pages_by_touch);
    const Mapped one(8);
    one.check_is_one(8);
    one.at(3) = std::byte{9};
    own(one.mapping.data() + kPage + 100, 3 * kPage);  // parts of four pages
    one.fill(2);
    CHECK(one.at(0) == std::byte{2});
    for (const std::size_t page : {1, 2, 4})
        CHECK(one.at(page) == std::byte{1});
    CHECK(one.at(3) == std::byte{9});
    CHECK(one.at(5) == std::byte{2});
    one.mapping.forget_writes();
    CHECK(one.at(1) == std::byte{2});
}

TEST_CASE("what other threads write while pages become this process's own is not lost", "[shm]") {
    const auto own = GENERATE(&local::own_pages, &local::own_pages_by_touch);
    const std::size_t pages = 512;
    const Mapped one(pages);
    std::jthread writer([&] {
        for (std::size_t page = 0; page < pages; ++page)
            std::atomic_ref(one.mapping.data()[page * kPage]).store(std::byte{9});
    });
    own(one.mapping.data(), one.mapping.size());
    writer.join();
    for (std::size_t page = 0; page < pages; ++page) {
        if (one.mapping.data()[page * kPage] != std::byte{9} || one.at(page) != std::byte{1}) FAIL("page " << page);
    }
}
