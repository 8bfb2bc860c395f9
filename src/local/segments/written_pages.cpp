
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/concurrency/in_parallel.hpp"
#include "base/system/fork.hpp"
#include "local/segments/segment.hpp"

namespace shared_tensor::local {

namespace {

void drop(std::byte* data, std::size_t bytes) { ::madvise(data, bytes, MADV_DONTNEED); }

/// /proc/self/pagemap of this process, opened once. Empty if it cannot be opened.
const ProcessFd& pagemap() {
    static constinit NeverDestroyed<OfThisProcess<ProcessFd>> current;  // may be used at any time
    return current.value.get(
        [] { return std::make_unique<ProcessFd>(UniqueFd(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC))); });
}

// The kernel's interface (Documentation/admin-guide/mm/pagemap.rst), since headers may be older than the kernel.

struct PageRegion {
    std::uint64_t start, end, categories;
};

struct ScanArguments {
    std::uint64_t size = sizeof(ScanArguments);
    std::uint64_t flags = 0;
    std::uint64_t start = 0, end = 0;
    std::uint64_t walk_end = 0;  ///< out: the address where the scan stopped
    std::uint64_t regions = 0, region_count = 0;
    std::uint64_t max_pages = 0;
    std::uint64_t inverted = 0, all_of = 0, any_of = 0, returned = 0;  ///< categories
};

constexpr auto kScan = _IOWR('f', 16, ScanArguments);
constexpr std::uint64_t kFilePage = 1 << 2, kPresentPage = 1 << 3, kSwappedPage = 1 << 4;

std::uint64_t address(const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); }

/// The present pages from `from` to `end` that are not pages of the file (or all present pages, with `of_file_too`), as
/// many as `regions` can hold. Moves `from` to where the scan stopped. Nullopt if the kernel does not support the call.
std::optional<std::span<const PageRegion>> scan(std::byte*& from, std::byte* end, std::span<PageRegion> regions,
                                                std::uint64_t max_pages, bool of_file_too) {
    ScanArguments arguments;
    arguments.start = address(from);
    arguments.end = address(end);
    arguments.regions = reinterpret_cast<std::uintptr_t>(regions.data());
    arguments.region_count = regions.size();
    arguments.max_pages = max_pages;
    arguments.any_of = kPresentPage | kSwappedPage;
    if (!of_file_too) arguments.inverted = arguments.all_of = kFilePage;
    arguments.returned = kFilePage;
    const int found = ::ioctl(pagemap().get(), kScan, &arguments);
    if (found < 0) return std::nullopt;
    from += arguments.walk_end - arguments.start;
    return regions.first(static_cast<std::size_t>(found));
}

void drop_of_us(std::byte* base, std::span<const PageRegion> regions) {
    for (const PageRegion& region : regions) {
        if ((region.categories & kFilePage) == 0)
            drop(base + (region.start - address(base)), static_cast<std::size_t>(region.end - region.start));
    }
}

void drop_scanned(std::byte* data, std::size_t bytes) {
    std::array<PageRegion, 256> found{};
    std::byte* const end = data + bytes;
    for (std::byte* from = data; from != end;) {
        const auto regions = scan(from, end, found, 0, false);
        if (!regions) return drop(from, static_cast<std::size_t>(end - from));
        drop_of_us(data, *regions);
    }
}

constexpr std::uint64_t kFew = 256;

bool drop_few_scanned(std::byte* data, std::size_t bytes) {
    std::array<PageRegion, 32> found{};
    std::byte* const end = data + bytes;
    std::byte* from = data;
    const auto regions = scan(from, end, found, kFew, true);
    if (!regions || from != end) return false;
    drop_of_us(data, *regions);
    return true;
}

// The functions below read pagemap entries instead of scanning. These are bits of an entry.
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62;
constexpr std::uint64_t kOfFile = std::uint64_t{1} << 61;

/// A written page of a private mapping is no longer a page of the file.
bool is_ours(std::uint64_t entry) { return (entry & (kPresent | kSwapped)) != 0 && (entry & kOfFile) == 0; }

/// Reads the entries of the pages from `from` on. False if they cannot be read.
bool read_entries(const std::byte* from, std::span<std::uint64_t> entries) {
    const auto at = static_cast<off_t>(address(from) / page_size() * sizeof(std::uint64_t));
    const ProcessFd& file = pagemap();
    return file &&
           ::pread(file.get(), entries.data(), entries.size_bytes(), at) == static_cast<ssize_t>(entries.size_bytes());
}

void drop_ours(std::byte* from, std::span<const std::uint64_t> entries) {
    for (std::size_t i = 0; i < entries.size();) {
        std::size_t end = i;
        while (end < entries.size() && is_ours(entries[end]))
            ++end;
        if (end > i) drop(from + i * page_size(), (end - i) * page_size());
        i = end + 1;
    }
}

void drop_read(std::byte* data, std::size_t bytes) {
    const std::size_t pages = bytes / page_size();
    std::vector<std::uint64_t> entries(std::min<std::size_t>(pages, 8192));
    for (std::size_t done = 0; done < pages;) {
        const std::size_t count = std::min(entries.size(), pages - done);
        std::byte* const from = data + done * page_size();
        if (!read_entries(from, {entries.data(), count})) return drop(from, (pages - done) * page_size());
        drop_ours(from, {entries.data(), count});
        done += count;
    }
}

constexpr std::size_t kFirstPages = 64;
constexpr std::size_t kSamples = 8;

/// Whether none of the sampled pages is present.
bool is_sparse(const std::byte* data, std::size_t pages) {
    for (std::size_t i = 0; i < kSamples; ++i) {
        const std::size_t page = (2 * i + 1) * pages / (2 * kSamples);
        std::uint64_t entry = 0;
        if (!read_entries(data + page * page_size(), {&entry, 1})) return true;
        if ((entry & (kPresent | kSwapped)) != 0) return false;
    }
    return true;
}

bool drop_few_read(std::byte* data, std::size_t bytes) {
    const std::size_t first = std::min(kFirstPages, bytes / page_size());
    std::byte* const rest = data + first * page_size();
    const std::size_t left = bytes - first * page_size();
    if (left > 0 && !is_sparse(rest, left / page_size())) return false;
    drop_read(data, first * page_size());
    // Dropping missing pages is free, and pages written between the samples must be dropped.
    if (left > 0) drop(rest, left);
    return true;
}

bool finds_ours_by_scan(std::byte* data, std::size_t bytes) {
    PageRegion found{};
    std::byte* const end = data + bytes;
    for (std::byte* from = data; from != end;) {
        const auto regions = scan(from, end, {&found, 1}, 1, false);
        if (!regions || !regions->empty()) return true;
    }
    return false;
}

bool finds_ours_by_reading(const std::byte* data, std::size_t bytes) {
    const std::size_t pages = bytes / page_size();
    std::vector<std::uint64_t> entries(std::min<std::size_t>(pages, 8192));
    for (std::size_t done = 0; done < pages;) {
        const std::span<std::uint64_t> read(entries.data(), std::min(entries.size(), pages - done));
        if (!read_entries(data + done * page_size(), read)) return true;
        if (std::any_of(read.begin(), read.end(), &is_ours)) return true;
        done += read.size();
    }
    return false;
}

/// Tries a scan of one page.
bool can_scan() {
    void* page = ::mmap(nullptr, page_size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    auto* from = static_cast<std::byte*>(page);
    PageRegion found{};
    const bool can = scan(from, from + page_size(), {&found, 1}, 0, false).has_value();
    ::munmap(page, page_size());
    return can;
}

}  // namespace

PageTable best_page_table() {
    // Not a lazy static: a fork while a thread initialises it would leave a child that waits forever.
    static constinit std::atomic<int> known{-1};
    int scanned = known.load(std::memory_order_relaxed);
    if (scanned < 0) {
        scanned = can_scan() ? 1 : 0;
        known.store(scanned, std::memory_order_relaxed);
    }
    return scanned == 1 ? PageTable::scanned : PageTable::read;
}

void drop_written_pages(std::byte* data, std::size_t bytes, PageTable how) {
    if (how == PageTable::scanned) return drop_scanned(data, bytes);
    drop_read(data, bytes);
}

bool drop_written_pages_if_few(std::byte* data, std::size_t bytes, PageTable how) {
    return how == PageTable::scanned ? drop_few_scanned(data, bytes) : drop_few_read(data, bytes);
}

namespace {

std::span<std::byte> pages_of(std::byte* data, std::size_t bytes) {
    const std::size_t before = address(data) % page_size();
    const std::size_t pages = (before + bytes + page_size() - 1) / page_size();
    return {data - before, pages * page_size()};
}

}  // namespace

bool has_written_pages(const std::byte* data, std::size_t bytes, PageTable how) {
    const std::span<std::byte> pages = pages_of(const_cast<std::byte*>(data), bytes);  // nothing is written
    return how == PageTable::scanned ? finds_ours_by_scan(pages.data(), pages.size())
                                     : finds_ours_by_reading(pages.data(), pages.size());
}

void own_pages(std::byte* data, std::size_t bytes) {
#ifndef MADV_POPULATE_WRITE
    constexpr int MADV_POPULATE_WRITE = 23;  // since Linux 5.14; some C libraries are older
#endif
    constexpr std::size_t kAtOnce = std::size_t{16} << 20;
    const std::span<std::byte> pages = pages_of(data, bytes);
    const auto populate = [](std::span<std::byte> some) {
        int failed = 0;
        do {
            failed = ::madvise(some.data(), some.size(), MADV_POPULATE_WRITE);
        } while (failed != 0 && (errno == EINTR || errno == EAGAIN));
        if (failed == 0) return;
        if (errno == ENOMEM) throw std::bad_alloc();
        own_pages_by_touch(some.data(), some.size());  // the kernel is older, or a page is lost: see GuardedMemory
    };
    const std::size_t parts = (pages.size() + kAtOnce - 1) / kAtOnce;
    const std::size_t threads = std::min<std::size_t>({parts, std::thread::hardware_concurrency(), 8});
    in_parallel(threads, parts, [&](std::uint64_t i) {
        populate(pages.subspan(i * kAtOnce, std::min(kAtOnce, pages.size() - i * kAtOnce)));
    });
}

/// Atomically replaces a byte by itself: concurrent writes of other threads are kept.
void own_pages_by_touch(std::byte* data, std::size_t bytes) {
    const std::span<std::byte> pages = pages_of(data, bytes);
    for (std::size_t at = 0; at < pages.size(); at += page_size()) {
        const std::atomic_ref<std::byte> byte(pages[at]);
        std::byte now = byte.load();
        while (!byte.compare_exchange_weak(now, now)) {
        }
    }
}

}  // namespace shared_tensor::local
