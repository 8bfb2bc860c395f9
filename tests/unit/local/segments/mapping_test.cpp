#include "local/segments/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>

#include "local/segments/segment.hpp"

using namespace shared_tensor;
using Catch::Matchers::ContainsSubstring;
using local::BadSegment;
using local::Mapping;
using local::Segment;

namespace {

const std::size_t kPage = local::page_size();

void fill(const Segment& segment, int byte) { std::memset(segment.data(), byte, segment.size()); }
int at(const Mapping& mapping, std::size_t offset) { return static_cast<int>(mapping.data()[offset]); }

UniqueFd memory(std::size_t bytes, bool allocated = true, int seals = local::kSeals) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
    if (allocated && bytes > 0) REQUIRE(::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) == 0);
    if (seals != 0) REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
    return fd;
}

}  // namespace

TEST_CASE("a mapping shows what the maker writes, before and after", "[shm]") {
    const Segment segment(4 * kPage);
    fill(segment, 1);
    const Mapping mapping(*segment.descriptor(), segment.size());
    CHECK(at(mapping, 0) == 1);
    fill(segment, 2);
    CHECK(at(mapping, 0) == 2);
    CHECK(at(mapping, segment.size() - 1) == 2);
}

TEST_CASE("what is written to a mapping stays in it", "[shm]") {
    const Segment segment(4 * kPage);
    fill(segment, 1);
    const Mapping mapping(*segment.descriptor(), segment.size()), other(*segment.descriptor(), segment.size());
    mapping.data()[0] = std::byte{9};
    CHECK(at(mapping, 0) == 9);
    CHECK(at(other, 0) == 1);
    CHECK(segment.data()[0] == std::byte{1});
}

TEST_CASE("pages that were only read stay warm when writes are forgotten", "[shm]") {
    const Segment segment(64 * kPage);
    fill(segment, 1);
    const Mapping mapping(*segment.descriptor(), segment.size());
    const auto touch = [&] {
        for (std::size_t page = 0; page < 64; ++page)
            CHECK(at(mapping, page * kPage) == 1);
    };
    touch();
    mapping.data()[0] = std::byte{9};
    mapping.forget_writes();
    rusage before{}, after{};
    ::getrusage(RUSAGE_THREAD, &before);
    for (std::size_t page = 1; page < 64; ++page)
        if (at(mapping, page * kPage) != 1) FAIL("wrong byte");
    ::getrusage(RUSAGE_THREAD, &after);
    CHECK(after.ru_minflt == before.ru_minflt);
    touch();
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
}

TEST_CASE("pages beyond the end of the file do not stand for missing ones", "[shm]") {
    const std::size_t bytes = 4 * kPage;
    for (const std::size_t beyond : {kPage, 2 * kPage, 8 * kPage}) {
        UniqueFd fd = memory(bytes, false, 0);
        REQUIRE(::fallocate(fd.get(), 0, static_cast<off_t>(2 * kPage), static_cast<off_t>(2 * kPage)) == 0);
        REQUIRE(::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(bytes), static_cast<off_t>(beyond)) == 0);
        REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, local::kSeals) == 0);
        CHECK_THROWS_WITH(Mapping(fd, bytes), ContainsSubstring("fallocate"));
    }
}

TEST_CASE("memory in huge pages is rejected", "[shm]") {
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
    if (!fd) SKIP("this kernel has no huge pages");
    REQUIRE(::ftruncate(fd.get(), kHuge) == 0);
    REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, local::kSeals) == 0);
    CHECK_THROWS_WITH(Mapping(fd, kHuge), ContainsSubstring("MFD_HUGETLB"));
}

TEST_CASE("what is no memory, or cannot be read, is rejected", "[shm]") {
    const UniqueFd fd = memory(kPage);
    const UniqueFd write_only(::open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_WRONLY | O_CLOEXEC));
    REQUIRE(write_only);
    CHECK_THROWS_AS(Mapping(write_only, kPage), BadSegment);
    CHECK_THROWS_AS(Mapping(UniqueFd(::open("/dev/zero", O_RDWR)), kPage), BadSegment);
    CHECK_THROWS_AS(Mapping(UniqueFd(::open("/proc/self/exe", O_RDONLY)), kPage), BadSegment);
    CHECK_THROWS_AS(Mapping(UniqueFd(), kPage), BadSegment);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const UniqueFd in(ends[0]), out(ends[1]);
    CHECK_THROWS_AS(Mapping(in, kPage), BadSegment);
}

TEST_CASE("a mapping outlives the descriptor and the maker", "[shm]") {
    auto segment = std::make_unique<Segment>(kPage);
    fill(*segment, 3);
    const Mapping mapping(*segment->descriptor(), kPage);
    segment.reset();
    CHECK(at(mapping, 0) == 3);
}

TEST_CASE("a writable segment is written to by all who mapped it as such", "[shm]") {
    const Segment segment(kPage, local::Sharing::writable);
    const Mapping one(*segment.descriptor(), kPage, local::Sharing::writable);
    const Mapping two(*segment.descriptor(), kPage, local::Sharing::writable);
    one.data()[5] = std::byte{7};
    CHECK(at(two, 5) == 7);
    CHECK(segment.data()[5] == std::byte{7});
    one.forget_writes();
    CHECK(one.forget_writes_if_cheap());
    CHECK(at(one, 5) == 7);
}

TEST_CASE("a writable segment can neither be cut nor sealed by those who get it", "[shm]") {
    const Segment segment(kPage, local::Sharing::writable);
    const int fd = segment.descriptor()->get();
    CHECK(::ftruncate(fd, 0) != 0);
    CHECK(::ftruncate(fd, static_cast<off_t>(2 * kPage)) != 0);
    CHECK(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
}

TEST_CASE("a segment that its maker alone writes is not mapped to be written to", "[shm]") {
    const Segment segment(kPage);
    CHECK_THROWS(Mapping(*segment.descriptor(), kPage, local::Sharing::writable));
    const Segment writable(kPage, local::Sharing::writable);
    CHECK_THROWS_AS(Mapping(*writable.descriptor(), kPage), BadSegment);
}
