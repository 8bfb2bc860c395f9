#include "runtime/tables/upload_table.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "support/event.hpp"
#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace shared_tensor::runtime;
using namespace shared_tensor::test;
using std::chrono::milliseconds;

namespace {

using Phase = Upload::Phase;
using Taken = Upload::Taken;
using Bytes = std::vector<std::byte>;

MemoryBlock take(std::uint64_t bytes) {
    auto memory = std::make_shared<Bytes>(bytes);
    return {memory->data(), memory};
}

Bytes content(std::size_t size) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = static_cast<std::byte>(i * 31 >> 2);
    return bytes;
}

struct Table {
    explicit Table(UploadLimits limits = {}) : table(limits, clock) {}

    UploadTable::UploadPointer open(const std::string& id, std::uint64_t size, const std::string& owner = "ann") {
        auto opened = table.open({owner, "x", id}, {".raw", size}, {owner}, &take);
        auto* upload = std::get_if<UploadTable::UploadPointer>(&opened);
        return upload != nullptr ? *upload : nullptr;
    }
    Taken put(Upload& upload, const Bytes& all, std::size_t first, std::size_t count) {
        return upload.take(first, std::span(all).subspan(first, count), clock.now());
    }

    ManualClock clock;
    UploadTable table;
};

bool holds(const Upload& upload, const Bytes& all) {
    const MemoryBlock block = upload.block();
    return std::equal(all.begin(), all.end(), block.data);
}

}  // namespace

TEST_CASE("An upload is complete when every byte of it came, once", "[service][uploads]") {
    Table table;
    const Bytes all = content(100);
    const auto upload = table.open("a", 100);
    CHECK(upload->progress().phase == Phase::open);
    CHECK(table.put(*upload, all, 50, 50) == Taken::more);
    CHECK(table.put(*upload, all, 40, 30) == Taken::more);
    CHECK(table.put(*upload, Bytes(100), 50, 50) == Taken::more);  // what is there stays
    CHECK(upload->progress().received == 60);
    CHECK(upload->progress().missing == std::vector<NumberRange>{{0, 40}});
    CHECK(table.put(*upload, all, 0, 40) == Taken::all);
    CHECK(upload->progress().phase == Phase::publishing);
    CHECK(table.put(*upload, all, 0, 40) == Taken::more);
    CHECK(holds(*upload, all));
    table.table.published({"ann", "x", "a"}, upload, 7);
    CHECK(upload->progress().version == 7);
    CHECK(upload->block().data == nullptr);  // it is its readers' now
    CHECK(table.table.stats().uploads == 0);
    CHECK(table.table.stats().bytes == 0);
    CHECK(table.open("a", 100) == upload);  // a part that comes again
    CHECK(table.open("a", 101) != upload);  // another file
}

TEST_CASE("An empty file is complete with its first part", "[service][uploads]") {
    Table table;
    const auto upload = table.open("a", 0);
    CHECK(table.put(*upload, {}, 0, 0) == Taken::all);
}

TEST_CASE("An upload without an id is not known once it is published", "[service][uploads]") {
    Table table;
    const auto upload = table.open("", 1);
    CHECK(table.put(*upload, content(1), 0, 1) == Taken::all);
    table.table.published({"ann", "x", ""}, upload, 1);
    CHECK(table.table.find({"ann", "x", ""}) == nullptr);
    CHECK(upload->is_published());
}

TEST_CASE("Uploads are bounded in bytes and number, and those that are done do not count", "[service][uploads]") {
    Table table({.max_bytes = 100, .max_uploads = 3});  // two of one client
    const auto full = [&](const std::string& owner, const std::string& id, std::uint64_t size) {
        auto opened = table.table.open({owner, "x", id}, {".raw", size}, {owner, true}, &take);
        auto* found = std::get_if<UploadTable::Full>(&opened);
        return found == nullptr ? "" : found->for_ever ? "for ever: " + found->reason : found->reason;
    };
    CHECK(full("ann", "big", 101).find("for ever: a file of at most 100 bytes") == 0);
    CHECK(full("ann", "a", 60).empty());
    const auto first = table.table.find({"ann", "x", "a"});
    REQUIRE(first != nullptr);
    CHECK(full("ann", "b", 41).find("60 bytes are under way") != std::string::npos);
    CHECK(table.table.stats().uploads == 1);  // what was rejected is not there
    CHECK(full("ann", "b", 40).empty());
    CHECK(full("ann", "c", 0).find("--max-uploads, of which one client may have half") != std::string::npos);
    CHECK(full("bob", "a", 0).empty());
    CHECK(full("cid", "a", 0).find("--max-uploads") != std::string::npos);
    CHECK(table.put(*first, content(60), 0, 60) == Taken::all);
    table.table.published({"ann", "x", "a"}, first, 1);
    CHECK(full("ann", "c", 60).empty());
    CHECK(table.table.stats().bytes == 100);
}

TEST_CASE("One owner has a part of the bytes of all, unless it may have all", "[service][uploads]") {
    Table table({.max_bytes = 100});
    const auto rejection = [&](const std::string& owner, const std::string& id, std::uint64_t size,
                               bool may_have_all = false) {
        auto opened = table.table.open({owner, "x", id}, {".raw", size}, {owner, may_have_all}, &take);
        auto* found = std::get_if<UploadTable::Full>(&opened);
        return found == nullptr ? "" : found->for_ever ? "for ever: " + found->reason : found->reason;
    };
    CHECK(rejection("ann", "big", 51) == "for ever: a file of at most 50 bytes (half of --max-upload-bytes)");
    const auto first = table.open("a", 40);
    CHECK(rejection("ann", "b", 11) ==
          "uploads of yours of 40 bytes are under way (at most half of --max-upload-bytes)");
    CHECK(rejection("ann", "b", 10).empty());
    CHECK(rejection("ann", "empty", 0).empty());
    CHECK(rejection("ann", "empty too", 0).empty());
    CHECK(rejection("bob", "a", 51, true) == "uploads of 50 bytes are under way (--max-upload-bytes)");
    CHECK(rejection("bob", "a", 50, true).empty());
    CHECK(table.table.remove({"ann", "x", "a"}, first));
    CHECK(rejection("ann", "c", 40).empty());
    auto whole = table.table.make({".raw", 1}, {"ann"}, &take);
    CHECK(std::holds_alternative<UploadTable::Full>(whole));
    for (const char* id : {"b", "c", "empty", "empty too"})
        CHECK(table.table.remove({"ann", "x", id}, table.table.find({"ann", "x", id})));
    CHECK(table.table.remove({"bob", "x", "a"}, table.table.find({"bob", "x", "a"})));
    CHECK(table.table.stats().bytes == 0);
    CHECK(rejection("ann", "d", 50).empty());
}

TEST_CASE("An upload whose memory cannot be had is not there", "[service][uploads]") {
    Table table;
    const auto none = [](std::uint64_t) -> MemoryBlock { throw std::bad_alloc(); };
    CHECK_THROWS_AS(table.table.open({"ann", "x", "a"}, {".raw", 10}, {"ann"}, none), std::bad_alloc);
    CHECK(table.table.stats().uploads == 0);
    CHECK(table.table.stats().bytes == 0);
    CHECK(table.open("a", 10) != nullptr);
}

TEST_CASE("Who comes while an upload is opened waits for it", "[service][uploads]") {
    Table table;
    Event opening, go_on;
    const auto slow = [&](std::uint64_t bytes) {
        opening.set();
        go_on.wait();
        return take(bytes);
    };
    UploadTable::UploadPointer first;
    std::jthread opener([&] {
        first = std::get<UploadTable::UploadPointer>(table.table.open({"ann", "x", "a"}, {".raw", 10}, {"ann"}, slow));
    });
    opening.wait();
    const auto second = table.open("a", 10);
    CHECK(second->settled(real_clock().now() + milliseconds(1)) == Phase::opening);
    std::atomic<bool> was_open{false};
    std::jthread waiting(
        [&] { was_open = second->settled(real_clock().now() + std::chrono::seconds(30)) == Phase::open; });
    go_on.set();
    opener.join();
    waiting.join();
    CHECK(was_open);
    CHECK(first == second);
    CHECK(table.table.stats().bytes == 10);
}

TEST_CASE("An upload ends without parts, and what is known of one that is done", "[service][uploads]") {
    Table table({.ttl = milliseconds(1000)});
    const Bytes all = content(10);
    const auto left = table.open("left", 10), fed = table.open("fed", 10), done = table.open("done", 10);
    CHECK(table.put(*done, all, 0, 10) == Taken::all);
    table.table.published({"ann", "x", "done"}, done, 1);
    table.clock.advance(milliseconds(900));
    CHECK(table.put(*fed, all, 0, 5) == Taken::more);
    table.clock.advance(milliseconds(200));
    table.table.expire();
    CHECK(left->progress().phase == Phase::dropped);
    CHECK(table.put(*left, all, 0, 10) == Taken::more);  // nobody is told that all is there
    CHECK(table.table.find({"ann", "x", "left"}) == nullptr);
    CHECK(table.table.find({"ann", "x", "done"}) == nullptr);
    CHECK(table.table.find({"ann", "x", "fed"}) == fed);
    CHECK(table.table.stats().bytes == 10);
}

TEST_CASE("An upload has so many gaps and no more", "[service][uploads]") {
    Table table;
    const Bytes all = content(30'000);
    const auto upload = table.open("a", all.size());
    std::size_t at = 0;
    while (table.put(*upload, all, at, 1) == Taken::more)
        at += 2;
    CHECK(at == 20'000);
    CHECK(table.put(*upload, all, at, 1) == Taken::too_many_gaps);
    CHECK(table.put(*upload, all, 1, 1) == Taken::more);  // fills one
    CHECK(table.put(*upload, all, at, 1) == Taken::more);
    CHECK(table.put(*upload, all, at + 2, 1) == Taken::too_many_gaps);
    CHECK(upload->progress().missing.size() == Upload::kMostGaps);
}

TEST_CASE("Who gives an upload up while its last part comes ends it, or does not", "[service][uploads]") {
    Table table({.ttl = milliseconds(0)});
    const Bytes all = content(64);
    int published = 0, given_up = 0;
    for (int round = 0; round < 500; ++round) {
        const std::string id = std::to_string(round);
        const auto upload = table.open(id, all.size());
        REQUIRE(upload != nullptr);
        std::atomic<bool> go{false}, removed{false};
        std::jthread other([&] {
            while (!go) {
            }
            if (round % 2 == 0)
                removed = table.table.remove({"ann", "x", id}, upload);
            else
                table.table.expire();
        });
        go = true;
        if (round % 3 == 0) std::this_thread::yield();
        if (table.put(*upload, all, 0, all.size()) == Taken::all) {
            REQUIRE(holds(*upload, all));
            table.table.published({"ann", "x", id}, upload, 1);
        }
        other.join();
        const bool ended = upload->progress().phase == Phase::dropped;
        REQUIRE(upload->is_published() != ended);
        if (round % 2 == 0) REQUIRE(removed == ended);
        ++(ended ? given_up : published);
        REQUIRE(table.table.stats().uploads == 0);  // so that there is room for the next
    }
    INFO(published << " published, " << given_up << " given up");
    CHECK(table.table.stats().bytes == 0);
}

TEST_CASE("Senders at once complete an upload once, while others give up theirs", "[service][uploads]") {
    Table table;
    const Bytes all = content(20'000);
    constexpr std::size_t kPiece = 173;
    for (int round = 0; round < 20; ++round) {
        const std::string id = std::to_string(round);
        std::atomic<int> complete{0}, wrong{0};
        {
            std::vector<std::jthread> senders;
            for (unsigned seed = 0; seed < 4; ++seed) {
                senders.emplace_back([&, seed] {
                    std::vector<std::size_t> firsts;
                    for (std::size_t at = 0; at < all.size(); at += kPiece)
                        firsts.push_back(at);
                    std::shuffle(firsts.begin(), firsts.end(), std::mt19937(seed));  // NOLINT(cert-msc*)
                    for (const std::size_t first : firsts) {
                        const auto upload = table.open(id, all.size());
                        if (upload->settled(real_clock().now() + std::chrono::seconds(30)) != Phase::open) continue;
                        if (table.put(*upload, all, first, std::min(kPiece, all.size() - first)) != Taken::all)
                            continue;
                        ++complete;
                        if (!holds(*upload, all)) ++wrong;
                        table.table.published({"ann", "x", id}, upload, 1);
                    }
                });
            }
            senders.emplace_back([&] {
                for (int i = 0; i < 50; ++i) {
                    const auto other = table.open("other", 1000, "bob");
                    table.put(*other, all, 0, 500);
                    table.table.remove({"bob", "x", "other"}, other);
                    table.table.expire();
                }
            });
        }
        REQUIRE(complete == 1);
        REQUIRE(wrong == 0);
    }
    CHECK(table.table.stats().uploads == 0);
    CHECK(table.table.stats().bytes == 0);
}

TEST_CASE("A published upload stays known beside many open ones", "[service][uploads]") {
    Table table({.max_uploads = 30'000});
    for (int i = 0; i < 10'001; ++i)
        REQUIRE(table.open("open-" + std::to_string(i), 1) != nullptr);
    const auto upload = table.open("done", 1);
    table.put(*upload, content(1), 0, 1);
    table.table.published({"ann", "x", "done"}, upload, 1);
    CHECK(table.table.find({"ann", "x", "done"}) == upload);
}
