#include "runtime/tables/upload_table.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <new>
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

/// Uploads of the file "x", of ann unless another owner is named.
struct Table {
    explicit Table(UploadLimits limits = {}) : table(limits, clock) {}

    UploadTable::UploadPointer open(const std::string& id, std::uint64_t size) {
        auto opened = table.open({"ann", "x", id}, {".raw", size}, {"ann"}, &take);
        auto* upload = std::get_if<UploadTable::UploadPointer>(&opened);
        return upload != nullptr ? *upload : nullptr;
    }
    /// Why it is not opened; empty if it is.
    std::string rejection(const std::string& owner, const std::string& id, std::uint64_t size,
                          bool may_have_all = false) {
        auto opened = table.open({owner, "x", id}, {".raw", size}, {owner, may_have_all}, &take);
        auto* full = std::get_if<UploadTable::Full>(&opened);
        return full == nullptr ? "" : full->for_ever ? "for ever: " + full->reason : full->reason;
    }
    Taken put(Upload& upload, const Bytes& all, std::size_t first, std::size_t count) {
        return upload.take(first, std::span(all).subspan(first, count), clock.now());
    }
    UploadTable::UploadPointer find(const std::string& id, const std::string& owner = "ann") {
        return table.find({owner, "x", id});
    }
    bool remove(const std::string& id, const std::string& owner = "ann") {
        return table.remove({owner, "x", id}, find(id, owner));
    }
    void publish(const std::string& id, const UploadTable::UploadPointer& upload) {
        table.published({"ann", "x", id}, upload, 1);
    }
    bool is_empty() const { return table.stats().uploads == 0 && table.stats().bytes == 0; }

    ManualClock clock;
    UploadTable table;
};

bool holds(const Upload& upload, const Bytes& all) {
    const MemoryBlock block = upload.block();
    return std::equal(all.begin(), all.end(), block.data);
}

}  // namespace

TEST_CASE("Uploads are bounded in number and bytes, for one client and for all", "[service][uploads]") {
    Table few({.max_bytes = 100, .max_uploads = 3}), table({.max_bytes = 100});
    CHECK(few.rejection("ann", "a", 40).empty());
    const auto first = few.find("a");
    CHECK(few.rejection("ann", "b", 0).empty());
    CHECK(few.rejection("ann", "c", 0).find("--max-uploads, of which one client may have half") != std::string::npos);
    CHECK(few.rejection("bob", "a", 0).empty());
    CHECK(few.rejection("cid", "a", 0).find("--max-uploads") != std::string::npos);
    CHECK(few.table.stats().uploads == 3);  // what was rejected is not there
    CHECK(few.put(*first, content(40), 0, 40) == Taken::all);
    few.publish("a", first);  // it does not count any more
    CHECK(few.rejection("ann", "c", 50).empty());

    CHECK(table.rejection("ann", "big", 51) == "for ever: a file of at most 50 bytes (half of --max-upload-bytes)");
    CHECK(table.rejection("ann", "big", 101, true).find("for ever: a file of at most 100 bytes") == 0);
    CHECK(table.rejection("ann", "a", 40).empty());
    CHECK(table.rejection("ann", "b", 11) ==
          "uploads of yours of 40 bytes are under way (at most half of --max-upload-bytes)");
    for (const auto& [id, size] : {std::pair{"b", 10}, {"empty", 0}, {"empty too", 0}})
        CHECK(table.rejection("ann", id, static_cast<std::uint64_t>(size)).empty());
    CHECK(table.rejection("bob", "a", 51, true) == "uploads of 50 bytes are under way (--max-upload-bytes)");
    CHECK(table.rejection("bob", "a", 50, true).empty());
    CHECK(table.remove("a"));
    CHECK(table.rejection("ann", "c", 40).empty());
    auto whole = table.table.make({".raw", 1}, {"ann"}, &take);
    CHECK(std::holds_alternative<UploadTable::Full>(whole));
    for (const char* id : {"b", "c", "empty", "empty too"})
        CHECK(table.remove(id));
    CHECK(table.remove("a", "bob"));
    CHECK(table.is_empty());
    CHECK(table.rejection("ann", "d", 50).empty());
}

TEST_CASE("An upload whose memory cannot be had is not there", "[service][uploads]") {
    Table table;
    const auto none = [](std::uint64_t) -> MemoryBlock { throw std::bad_alloc(); };
    CHECK_THROWS_AS(table.table.open({"ann", "x", "a"}, {".raw", 10}, {"ann"}, none), std::bad_alloc);
    CHECK(table.is_empty());
    CHECK(table.open("a", 10) != nullptr);
}

TEST_CASE("An upload ends without parts, and what is known of one that is done", "[service][uploads]") {
    Table table({.ttl = milliseconds(1000)});
    const Bytes all = content(10);
    const auto left = table.open("left", 10), fed = table.open("fed", 10), done = table.open("done", 10);
    CHECK(table.put(*done, all, 0, 10) == Taken::all);
    table.publish("done", done);
    table.clock.advance(milliseconds(900));
    CHECK(table.put(*fed, all, 0, 5) == Taken::more);
    table.clock.advance(milliseconds(200));
    table.table.expire();
    CHECK(left->progress().phase == Phase::dropped);
    CHECK(table.put(*left, all, 0, 10) == Taken::more);  // nobody is told that all is there
    CHECK(table.find("left") == nullptr);
    CHECK(table.find("done") == nullptr);
    CHECK(table.find("fed") == fed);
    CHECK(table.table.stats().bytes == 10);
}

TEST_CASE("An upload does not end while parts of it arrive, and its time begins after them", "[service][uploads]") {
    Table table({.ttl = milliseconds(1000)});
    const Bytes all = content(10);
    const UploadTable::Key key{"ann", "x", "slow"};
    auto first = table.table.part_begins(key), second = table.table.part_begins(key);  // before it is opened
    const auto upload = table.open("slow", 10), other = table.open("other", 10);
    CHECK(table.put(*upload, all, 0, 5) == Taken::more);
    first.reset();
    for (int i = 0; i < 3; ++i) {
        table.clock.advance(milliseconds(1500));
        table.table.expire();
        CHECK(table.find("slow") == upload);
    }
    CHECK(other->progress().phase == Phase::dropped);
    table.clock.advance(milliseconds(900));
    second.reset();  // it did not arrive whole
    table.clock.advance(milliseconds(900));
    table.table.expire();
    CHECK(table.find("slow") == upload);
    table.clock.advance(milliseconds(200));
    table.table.expire();
    CHECK(upload->progress().phase == Phase::dropped);
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
            table.publish(id, upload);
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

TEST_CASE("A published upload stays known beside many open ones", "[service][uploads]") {
    Table table({.max_uploads = 30'000});
    for (int i = 0; i < 10'001; ++i)
        REQUIRE(table.open("open-" + std::to_string(i), 1) != nullptr);
    const auto upload = table.open("done", 1);
    table.put(*upload, content(1), 0, 1);
    table.publish("done", upload);
    CHECK(table.find("done") == upload);
}
