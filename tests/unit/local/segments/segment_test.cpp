#include "local/segments/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstring>
#include <stdexcept>

using namespace shared_tensor;
using local::Segment;

TEST_CASE("nobody but its maker can write, cut or punch a segment", "[shm]") {
    const Segment segment(2 * local::page_size());
    const int fd = segment.descriptor()->get();
    CHECK(::fcntl(fd, F_GET_SEALS) == local::kSeals);
    CHECK(::mmap(nullptr, segment.size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    CHECK(::write(fd, "x", 1) == -1);
    CHECK(::ftruncate(fd, 0) == -1);
    CHECK(::ftruncate(fd, static_cast<off_t>(4 * local::page_size())) == -1);
    CHECK(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(local::page_size())) == -1);
    CHECK(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1);
    std::memset(segment.data(), 7, segment.size());
    char last = 0;
    CHECK(::pread(fd, &last, 1, static_cast<off_t>(segment.size() - 1)) == 1);
    CHECK(last == 7);
}

TEST_CASE("segments have random names and whole pages", "[shm]") {
    const Segment one(local::page_size()), two(local::page_size());
    CHECK(one.id().starts_with("g-"));
    CHECK(one.id().size() == 2 + 32);
    CHECK(one.id() != two.id());
    CHECK_THROWS_AS(Segment(0), std::logic_error);
    CHECK_THROWS_AS(Segment(local::page_size() + 1), std::logic_error);
}

TEST_CASE("a segment that does not fit in memory is bad_alloc, and leaves nothing behind", "[shm]") {
    CHECK_THROWS_AS(Segment(std::size_t{1} << 46), std::bad_alloc);
}

TEST_CASE("a sealed segment keeps its bytes, whoever tries to write", "[shm]") {
    Segment segment(2 * local::page_size());
    std::memset(segment.data(), 7, segment.size());
    REQUIRE(segment.seal());
    const int fd = segment.descriptor()->get();
    CHECK(::fcntl(fd, F_GET_SEALS) == (local::kSeals | local::kFinalSeals));
    CHECK(segment.data()[5] == std::byte{7});
    segment.data()[5] = std::byte{9};
    std::byte there{};
    CHECK(::pread(fd, &there, 1, 5) == 1);
    CHECK(there == std::byte{7});
    CHECK(::pwrite(fd, "x", 1, 0) == -1);
    CHECK(::mmap(nullptr, segment.size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    CHECK(segment.seal());
}

TEST_CASE("a segment to which others may write is not sealed, and stays shared", "[shm]") {
    Segment segment(local::page_size(), local::Sharing::writable);
    CHECK_FALSE(segment.seal());
    segment.data()[0] = std::byte{7};
    std::byte there{};
    CHECK(::pread(segment.descriptor()->get(), &there, 1, 0) == 1);
    CHECK(there == std::byte{7});
}

TEST_CASE("memory that other processes may punch holes into is guarded against faults", "[shm]") {
    const Segment own(local::page_size()), writable(local::page_size(), local::Sharing::writable);
    CHECK(is_guarded(writable.data()));
    CHECK_FALSE(is_guarded(own.data()));
}
