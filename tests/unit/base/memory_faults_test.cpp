#include "base/memory/memory_faults.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <deque>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "support/lost_memory.hpp"

using namespace shared_tensor;

namespace {

const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

/// Memory of this process, unmapped at the end.
class Pages {
public:
    explicit Pages(std::size_t count) : bytes_(count * kPage) {
        void* mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(mapped != MAP_FAILED);
        data_ = static_cast<std::byte*>(mapped);
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages() { ::munmap(data_, bytes_); }
    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    volatile std::byte& at(std::size_t offset) const { return data_[offset]; }

private:
    std::byte* data_ = nullptr;
    std::size_t bytes_;
};

}  // namespace

TEST_CASE("memory that fails is zeros from then on, all of it, and the fault is counted", "[faults]") {
    handle_memory_faults();
    const bool writes = GENERATE(false, true);
    const Pages pages(4);
    pages.at(0) = std::byte{7};
    const auto faults = std::make_shared<FaultCount>();
    const GuardedMemory guarded(pages.data(), pages.bytes(), faults);
    const FaultWatch watch(faults);
    test::lose_pages(pages.data() + kPage, kPage);
    CHECK(pages.at(0) == std::byte{7});
    CHECK_FALSE(guarded.is_broken());
    CHECK_FALSE(watch.failed());

    if (writes) pages.at(kPage + 5) = std::byte{1};
    CHECK(pages.at(kPage) == std::byte{0});
    CHECK(guarded.is_broken());
    CHECK(faults->get() == 1);
    CHECK(watch.failed());
    CHECK_FALSE(FaultWatch(faults).failed());
    CHECK(pages.at(0) == std::byte{0});
    pages.at(kPage) = std::byte{9};
    CHECK(pages.at(kPage) == std::byte{9});
    CHECK(faults->get() == 1);
}

TEST_CASE("a fault in one memory is nothing to its neighbours, and a guard ends with its last byte", "[faults]") {
    handle_memory_faults();
    const Pages pages(3);
    for (std::size_t i = 0; i < pages.bytes(); ++i)
        pages.at(i) = std::byte{3};
    std::byte* const start = pages.data() + kPage;
    const auto mine = std::make_shared<FaultCount>(), others = std::make_shared<FaultCount>();
    auto middle = std::make_unique<GuardedMemory>(start, kPage, mine);
    CHECK_FALSE(is_guarded(start - 1));
    CHECK(is_guarded(start));
    CHECK(is_guarded(start + kPage - 1));
    CHECK_FALSE(is_guarded(start + kPage));
    const GuardedMemory before(pages.data(), kPage, others), after(start + kPage, kPage, others);
    test::lose_pages(start, kPage);
    CHECK(pages.at(2 * kPage - 1) == std::byte{0});
    CHECK(mine->get() == 1);
    CHECK(others->get() == 0);
    CHECK_FALSE(before.is_broken());
    CHECK_FALSE(after.is_broken());
    CHECK(pages.at(kPage - 1) == std::byte{3});
    CHECK(pages.at(2 * kPage) == std::byte{3});
    middle.reset();
    CHECK_FALSE(is_guarded(start));
}

TEST_CASE("there may be as many guards as there is memory for", "[faults]") {
    handle_memory_faults();
    const Pages pages(1000);
    const auto faults = std::make_shared<FaultCount>();
    std::deque<GuardedMemory> guards;
    for (std::size_t i = 0; i < 1000; ++i)
        guards.emplace_back(pages.data() + i * kPage, kPage, faults);
    test::lose_pages(pages.data() + 999 * kPage, kPage);
    CHECK(pages.at(999 * kPage) == std::byte{0});
    CHECK(guards.back().is_broken());
    CHECK_FALSE(guards.front().is_broken());
    guards.clear();
    CHECK_FALSE(is_guarded(pages.data()));
}

TEST_CASE("threads that fault at once in the same memory, and beside guards that come and go, go on", "[faults]") {
    handle_memory_faults();
    constexpr int kThreads = 4;
    const auto faults = std::make_shared<FaultCount>();
    for (int round = 0; round < 50; ++round) {
        const Pages shared(1), own(kThreads);
        const GuardedMemory guarded(shared.data(), kPage, faults);
        test::lose_pages(shared.data(), kPage);
        std::latch start(kThreads);
        {
            std::vector<std::jthread> threads;
            for (std::size_t i = 0; i < kThreads; ++i) {
                threads.emplace_back([&, i] {
                    start.arrive_and_wait();
                    for (int again = 0; again < 20; ++again) {
                        const GuardedMemory mine(own.data() + i * kPage, kPage, faults);
                        [[maybe_unused]] const std::byte read = shared.at(i);
                    }
                });
            }
        }
        CHECK(guarded.is_broken());
        CHECK(shared.at(0) == std::byte{0});
    }
}
