// Segments of other processes that this process passes on: which memory may be, and who is told of the end.

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "local/segments/received_segment.hpp"
#include "support/forked_child.hpp"
#include "support/lost_memory.hpp"

using namespace shared_tensor;
using namespace shared_tensor::local;
using namespace shared_tensor::test;

namespace {

const std::size_t kPage = page_size();
const std::size_t kPages = 64, kBytes = kPages * kPage;

/// Memory of a maker in this process, as if another process had lent it.
class Lent final : public ReceivedMemory, public std::enable_shared_from_this<Lent> {
public:
    explicit Lent(Sharing sharing = Sharing::read_only)
        : made(kBytes, sharing), mapped(*made.descriptor(), kBytes, sharing) {
        std::memset(made.data(), 1, kBytes);
    }
    const Mapping& mapping() const override { return mapped; }
    const std::string& principal() const override { return name; }
    bool sender_may_write() const override { return false; }
    SegmentUsePointer pass_on(const std::shared_ptr<ReceivedMemory>& self) override {
        ++asked;
        return available ? std::make_shared<PassedOn>(received, self, [this] { ++retired; }) : nullptr;
    }
    std::byte& at(std::size_t page) const { return mapped.data()[page * kPage + 5]; }

    const Segment made;
    Mapping mapped;
    const std::string name = "uid:1";
    const std::shared_ptr<const ReceivedSegment> received =
        std::make_shared<const ReceivedSegment>(made.descriptor(), kBytes);
    bool available = true;
    int asked = 0, retired = 0;
};

/// Lent memory that find_received() finds.
struct Found {
    explicit Found(Sharing sharing = Sharing::read_only) : lent(std::make_shared<Lent>(sharing)), range(lent) {}
    std::optional<SegmentPlace> find(std::size_t offset = 0, std::uint64_t bytes = kBytes) const {
        return find_received(lent->mapped.data() + offset, bytes, [](const ReceivedMemory&) { return true; });
    }
    const std::shared_ptr<Lent> lent;
    std::optional<ReceivedRange> range;
};

struct Listener final : SegmentListener {
    void segment_gone(const std::string& id) override { gone.push_back(id); }
    std::vector<std::string> gone;
};

std::vector<PageTable> page_tables() {
    if (best_page_table() == PageTable::scanned) return {PageTable::scanned, PageTable::read};
    return {PageTable::read};
}

}  // namespace

TEST_CASE("a page is written if this process wrote to it, not if it only read it", "[shm]") {
    const PageTable how = GENERATE(from_range(page_tables()));
    const Lent lent;
    const auto written = [&](std::size_t from, std::size_t bytes) {
        return has_written_pages(lent.mapped.data() + from, bytes, how);
    };
    CHECK_FALSE(written(0, kBytes));
    for (std::size_t page = 0; page < kPages; ++page)
        REQUIRE(lent.at(page) == std::byte{1});
    CHECK_FALSE(written(0, kBytes));
    lent.at(10) = std::byte{2};
    CHECK(written(0, kBytes));
    CHECK(written(10 * kPage, 1));
    CHECK(written(11 * kPage - 1, 1));
    CHECK(written(9 * kPage, kPage + 1));
    CHECK_FALSE(written(9 * kPage, kPage));
    CHECK_FALSE(written(11 * kPage, kBytes - 11 * kPage));
    lent.mapped.forget_writes();
    CHECK_FALSE(written(0, kBytes));
    own_pages(lent.mapped.data() + 20 * kPage + 7, 1);
    CHECK(written(0, kBytes));
    CHECK_FALSE(written(0, 20 * kPage));
}

TEST_CASE("received memory is found by the bytes in it, with the segment and the offset", "[shm]") {
    const Found found;
    constexpr std::uint64_t kSome = kMinPassedOn;
    for (const std::size_t offset : {std::size_t{0}, kPage, std::size_t{13}, kBytes - kSome}) {
        const auto place = found.find(offset, kSome);
        REQUIRE(place);
        CHECK(place->offset == offset);
        CHECK(place->segment->segment().id() == found.lent->received->id());
        CHECK(place->segment->segment().descriptor() == found.lent->made.descriptor());
        CHECK(place->segment->segment().size() == kBytes);
    }
    CHECK_FALSE(found.find(kBytes - kSome + 1, kSome));
    CHECK_FALSE(found.find(kBytes, kSome));
    CHECK_FALSE(found.find(0, kBytes + 1));
    CHECK_FALSE(found.find(kPage, ~std::uint64_t{0}));
    CHECK_FALSE(found.find(0, kSome - 1));
    CHECK_FALSE(find_received(found.lent->made.data(), kSome, [](const ReceivedMemory&) { return true; }));
}

TEST_CASE("memory whose segment has other bytes, or that the receiver may not have, is not passed on", "[shm]") {
    Found found;
    CHECK(found.find());
    CHECK_FALSE(find_received(found.lent->mapped.data(), kBytes, [](const ReceivedMemory&) { return false; }));
    found.lent->at(40) = std::byte{2};
    const int asked = found.lent->asked;
    CHECK_FALSE(found.find());
    CHECK_FALSE(found.find(30 * kPage, 20 * kPage));
    CHECK(found.lent->asked == asked);  // without a question to the maker
    CHECK(found.find(0, 40 * kPage));
    found.lent->mapped.forget_writes();
    CHECK(found.find());
    found.lent->available = false;
    CHECK_FALSE(found.find());
    found.lent->available = true;
    found.range.reset();
    CHECK_FALSE(found.find());
    CHECK_FALSE(Found(Sharing::writable).find());
}

TEST_CASE("memory that failed is not passed on", "[shm]") {
    handle_memory_faults();
    const Found found;
    found.lent->mapped.survive_faults(std::make_shared<FaultCount>());
    CHECK(found.find());
    lose_pages(found.lent->mapped.data(), kBytes);
    CHECK(static_cast<volatile std::byte&>(found.lent->at(0)) == std::byte{0});
    CHECK_FALSE(found.find(2 * kPage, kMinPassedOn));
}

TEST_CASE("a forked child passes on nothing that its parent received", "[shm]") {
    const Found found;
    REQUIRE(found.find());
    CHECK(in_child([&] { return !found.find(); }));
    CHECK(in_child([&] { return Found().find() && !found.find(); }));
    CHECK(found.find());
}

TEST_CASE("the memory stays while it is passed on, and its end is told once, not by a forked child", "[shm]") {
    const auto listener = std::make_shared<Listener>();
    auto found = std::make_unique<Found>();
    const std::weak_ptr<Lent> lent = found->lent;
    const std::string id = found->lent->received->id();
    CHECK(id.starts_with("g-"));
    CHECK(id != found->lent->made.id());
    auto use = found->find()->segment;
    use->tell_end(listener);
    use->tell_end(std::make_shared<Listener>());  // it is gone before
    found.reset();
    REQUIRE_FALSE(lent.expired());
    use->retire();
    CHECK(lent.lock()->retired == 1);
    CHECK(in_child([&] {
        use.reset();
        return listener->gone.empty();
    }));
    CHECK(listener->gone.empty());
    use.reset();
    CHECK(lent.expired());
    CHECK(listener->gone == std::vector{id});
}

TEST_CASE("threads pass memory on while other memory comes and goes", "[shm]") {
    const Found found;
    std::atomic<int> wrong{0};
    {
        std::vector<std::jthread> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.emplace_back([&] {
                for (int i = 0; i < 200; ++i) {
                    const Found other;
                    if (!other.find() || other.find()->segment->segment().id() != other.lent->received->id()) ++wrong;
                }
            });
        }
        for (int i = 0; i < 2'000; ++i)
            wrong += find_received(found.lent->mapped.data(), kBytes, [](const auto&) { return false; }) ? 1 : 0;
    }
    CHECK(wrong == 0);
}
