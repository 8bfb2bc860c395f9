// Memory that is written once and sealed for ever, and what keeps it.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "local/segments/immutable_memory.hpp"
#include "local/segments/segment_pool.hpp"
#include "support/temporary_folder.hpp"

using namespace shared_tensor;
using Catch::Matchers::ContainsSubstring;
using local::BadSegment;
using local::ImmutableMemory;
using local::Segment;
using local::SegmentPool;

namespace {

const std::size_t kPage = local::page_size();
constexpr int kAllSeals = local::kSeals | local::kFinalSeals;

std::vector<std::byte> bytes_of(std::size_t count, int value) { return {count, std::byte(value)}; }

/// Two pages of 7, or of another value.
std::shared_ptr<const UniqueFd> two_pages(int value = 7) {
    ImmutableMemory memory(2 * kPage);
    memory.append(bytes_of(2 * kPage, value));
    return memory.seal();
}

/// Memory with all its pages, `beyond` more pages beyond its end, and these seals.
std::shared_ptr<const UniqueFd> memory(std::size_t pages, int seals, std::size_t beyond = 0) {
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(::ftruncate(fd, static_cast<off_t>(pages * kPage)) == 0);
    REQUIRE(::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>((pages + beyond) * kPage)) == 0);
    REQUIRE(::fcntl(fd, F_ADD_SEALS, seals) == 0);
    return std::make_shared<const UniqueFd>(fd);
}

}  // namespace

TEST_CASE("immutable memory has the bytes that were written, and zeros between and behind them", "[shm][immutable]") {
    ImmutableMemory written(kPage + 5);
    CHECK(written.size() == 2 * kPage);
    written.append(bytes_of(3, 1));
    written.pad(kPage + 1);
    written.append(bytes_of(4, 2));
    const Segment segment(written.seal(), 2 * kPage);
    CHECK(segment.data()[2] == std::byte{1});
    CHECK(segment.data()[3] == std::byte{0});
    CHECK(segment.data()[kPage] == std::byte{0});
    CHECK(segment.data()[kPage + 4] == std::byte{2});
    CHECK(segment.data()[2 * kPage - 1] == std::byte{0});
    CHECK_THROWS_AS(ImmutableMemory(0), std::logic_error);
    CHECK_THROWS_AS(ImmutableMemory(std::uint64_t{1} << 46), std::bad_alloc);
    ImmutableMemory small(1);
    CHECK_THROWS_AS(small.append(bytes_of(kPage + 1, 1)), std::logic_error);
}

TEST_CASE("immutable memory has the bytes of a file, also after the file was changed", "[shm][immutable]") {
    const test::TemporaryFolder folder;
    const std::string path = folder.file("bytes");
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    const auto bytes = bytes_of(3 * kPage, 1);
    REQUIRE(::pwrite(file.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    ImmutableMemory written(4 * kPage);
    written.append(bytes_of(10, 5));
    CHECK(written.append_file(file, 1, 2 * kPage) == 2 * kPage);
    CHECK(written.append_file(file, 2 * kPage, 2 * kPage - 10) == kPage);  // the file ends
    const Segment segment(written.seal(), written.size());
    const auto later = bytes_of(3 * kPage, 9);
    REQUIRE(::pwrite(file.get(), later.data(), later.size(), 0) == static_cast<ssize_t>(later.size()));
    CHECK(segment.data()[9] == std::byte{5});
    CHECK(segment.data()[10] == std::byte{1});
    CHECK(segment.data()[3 * kPage + 9] == std::byte{1});
    CHECK(segment.data()[3 * kPage + 10] == std::byte{0});
    const UniqueFd folder_itself(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ImmutableMemory other(kPage);
    CHECK_THROWS_AS(other.append_file(folder_itself, 0, 1), std::system_error);
}

TEST_CASE("nobody can change immutable memory, and its holder's writes stay in its process", "[shm][immutable]") {
    const auto descriptor = two_pages();
    const int fd = descriptor->get();
    CHECK(local::is_immutable(*descriptor));
    CHECK(::fcntl(fd, F_GET_SEALS) == kAllSeals);
    CHECK(::pwrite(fd, "x", 1, 0) == -1);
    CHECK(::ftruncate(fd, 0) == -1);
    CHECK(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(kPage)) == -1);
    CHECK(::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(8 * kPage)) == -1);
    CHECK(::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    Segment one(descriptor, 2 * kPage);
    const Segment two(descriptor, 2 * kPage);
    CHECK_FALSE(one.differs(0, 2 * kPage));
    one.data()[kPage] = std::byte{9};
    CHECK(one.differs(0, 2 * kPage));
    CHECK_FALSE(one.differs(0, kPage));
    CHECK(one.seal());
    CHECK(one.data()[kPage] == std::byte{9});
    CHECK(two.data()[kPage] == std::byte{7});
}

TEST_CASE("memory that somebody could still change is not immutable", "[shm][immutable]") {
    for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE, F_SEAL_WRITE, F_SEAL_SEAL}) {
        INFO(missing);
        const auto descriptor = memory(2, kAllSeals & ~missing);
        CHECK_FALSE(local::is_immutable(*descriptor));
        CHECK_THROWS_WITH(Segment(descriptor, 2 * kPage), ContainsSubstring("sealed"));
    }
    CHECK(local::is_immutable(*memory(2, kAllSeals)));
    CHECK_THROWS_WITH(Segment(memory(2, kAllSeals), kPage), ContainsSubstring("size"));
    const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    CHECK_FALSE(local::is_immutable(file));
}

TEST_CASE("a segment that a forked child can write to is not sealed, and keeps its bytes", "[shm][immutable]") {
    Segment segment(2 * kPage);
    std::memset(segment.data(), 7, segment.size());
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        char byte = 0;
        ::close(ends[1]);
        (void)!::read(ends[0], &byte, 1);  // until the parent closes it
        ::_exit(0);
    }
    CHECK_FALSE(segment.seal());
    CHECK_FALSE(local::is_immutable(*segment.descriptor()));
    CHECK_FALSE(segment.differs(0, segment.size()));
    segment.data()[0] = std::byte{9};
    CHECK(segment.differs(0, segment.size()));
    std::byte there{};
    REQUIRE(::pread(segment.descriptor()->get(), &there, 1, 0) == 1);
    CHECK(there == std::byte{7});
    ::close(ends[0]);
    ::close(ends[1]);
    ::waitpid(child, nullptr, 0);
    CHECK_FALSE(segment.seal());  // its first write is not in the memory
    CHECK(segment.data()[0] == std::byte{9});
}

TEST_CASE("a pool counts all that the kernel holds for immutable memory, and frees it after its last use",
          "[shm][immutable]") {
    std::vector<std::string> gone;
    SegmentPool pool({.max_bytes = 6 * kPage}, [&](const std::string& id) { gone.push_back(id); });
    auto one = pool.adopt(two_pages(), 2 * kPage, "me");
    CHECK(one->principal() == "me");
    CHECK(one->segment().data()[5] == std::byte{7});
    CHECK(pool.find(one->data() + kPage)->segment == one);
    CHECK(pool.use().bytes == 2 * kPage);
    auto two = pool.adopt(memory(1, kAllSeals, 3), kPage, "me");
    CHECK(pool.use().bytes == 6 * kPage);
    CHECK_THROWS_AS(pool.adopt(two_pages(), 2 * kPage, "me"), local::PoolFull);
    CHECK(pool.use().segments == 2);
    const std::string id = one->segment().id();
    one.reset();
    two.reset();
    CHECK(gone.size() == 2);
    CHECK(gone.front() == id);
    CHECK(pool.use().bytes == 0);
    CHECK(pool.use().segments == 0);
    CHECK(pool.use().idle_segments == 0);
    CHECK_THROWS_AS(pool.adopt(memory(2, local::kSeals), 2 * kPage, "me"), BadSegment);
    CHECK(pool.use().segments == 0);
}
