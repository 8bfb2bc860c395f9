#include "local/segments/mapping.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "local/segments/segment.hpp"

using namespace shared_tensor;
using local::Mapping;
using local::PageTable;
using local::Segment;

namespace {

const std::size_t kPage = local::page_size();

/// A segment of ones and our mapping of it.
struct Mapped {
    explicit Mapped(std::size_t pages) : segment(pages * kPage), mapping(*segment.descriptor(), pages * kPage) {
        std::memset(segment.data(), 1, segment.size());
    }
    std::byte& at(std::size_t page) const { return mapping.data()[page * kPage + 5]; }
    void touch(std::size_t pages) const {
        for (std::size_t page = 0; page < pages; ++page)
            CHECK(at(page) == std::byte{1});
    }
    const Segment segment;
    const Mapping mapping;
};

/// Those that this kernel has; reading is the last resort of all.
std::vector<PageTable> transports() {
    if (local::best_page_table() == PageTable::scanned) return {PageTable::scanned, PageTable::read};
    return {PageTable::read};
}

}  // namespace

TEST_CASE("all written pages are dropped, however they lie", "[shm]") {
    for (const PageTable how : transports()) {
        const std::size_t pages = 3 * 8192 + 5;
        const Mapped one(pages);
        for (std::size_t page = 0; page < 2000; page += 2)  // more stretches than one look can name
            one.at(page) = std::byte{9};
        for (const std::size_t page : {std::size_t{8191}, std::size_t{8192}, std::size_t{8193}, pages - 1})
            one.at(page) = std::byte{9};
        local::drop_written_pages(one.mapping.data(), one.mapping.size(), how);
        one.touch(pages);
    }
}

TEST_CASE("few written pages are dropped at once, wherever they lie", "[shm]") {
    for (const PageTable how : transports()) {
        const std::size_t pages = 1 << 16;
        const Mapped one(pages);
        for (const std::size_t page : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, pages - 1})
            one.at(page) = std::byte{9};
        CHECK(local::drop_written_pages_if_few(one.mapping.data(), one.mapping.size(), how));
        for (const std::size_t page : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, pages - 1})
            CHECK(one.at(page) == std::byte{1});
    }
}

TEST_CASE("nothing is promised of a mapping of which much was touched", "[shm]") {
    for (const PageTable how : transports()) {
        const std::size_t pages = 4096;
        const Mapped one(pages);
        one.touch(pages);
        one.at(pages - 1) = std::byte{9};
        CHECK_FALSE(local::drop_written_pages_if_few(one.mapping.data(), one.mapping.size(), how));
    }
}

TEST_CASE("many short stretches are no few pages", "[shm]") {
    if (local::best_page_table() != PageTable::scanned) SKIP("this kernel has no PAGEMAP_SCAN");
    const Mapped one(4096);
    for (std::size_t page = 0; page < 4096; page += 64)
        one.at(page) = std::byte{9};
    CHECK_FALSE(local::drop_written_pages_if_few(one.mapping.data(), one.mapping.size(), PageTable::scanned));
    local::drop_written_pages(one.mapping.data(), one.mapping.size(), PageTable::scanned);
    one.touch(4096);
}

TEST_CASE("pages that were made this process's own show nothing that is written to the file later", "[shm]") {
    const auto own = GENERATE(&local::own_pages, &local::own_pages_by_touch);
    const Mapped one(8);
    one.touch(8);
    one.at(3) = std::byte{9};
    own(one.mapping.data() + kPage + 100, 3 * kPage);  // parts of four pages
    std::memset(one.segment.data(), 2, one.segment.size());
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
