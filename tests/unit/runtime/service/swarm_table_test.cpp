// Who fetches which piece from whom when several receivers fetch one file.

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "runtime/tables/swarm_table.hpp"
#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace shared_tensor::runtime;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kPieces = 40;

/// Receivers that ask in turn, and get each piece at once.
struct Receivers {
    explicit Receivers(std::size_t count, SwarmLimits limits = {}) : table(limits, clock) {
        for (std::size_t i = 0; i < count; ++i) {
            names.push_back("http://host-" + std::to_string(i));
            missing[i] = kPieces;
        }
    }

    SwarmTable::Step ask(std::size_t i, std::vector<std::uint64_t> has = {}, std::vector<std::uint64_t> lacks = {}) {
        const auto step = table.next("file", kPieces, {ids[i], names[i], std::move(has), std::move(lacks)}).value();
        ids[i] = step.receiver;
        return step;
    }
    /// Each asks once, and then tells the outcome: a piece from a relay in `bad` is lost.
    void turn(const std::set<std::string>& bad = {}) {
        std::vector<SwarmTable::Step> steps;
        for (std::size_t i = 0; i < names.size(); ++i)
            steps.push_back(ask(i, std::exchange(got[i], {}), std::exchange(lost[i], {})));
        for (std::size_t i = 0; i < names.size(); ++i) {
            const SwarmTable::Step& step = steps[i];
            missing[i] = step.missing;
            if (!step.piece) continue;
            const bool is_lost = bad.contains(step.from);
            (is_lost ? lost : got)[i].push_back(*step.piece);
            ++from[step.from];
            if (step.from.empty()) ++of_server[*step.piece];
            if (is_lost) ++failures;
        }
        clock.advance(10ms);
    }
    bool done() {
        for (std::size_t i = 0; i < names.size(); ++i)
            if (ids[i].empty() || missing[i] > 0) return false;
        return true;
    }

    ManualClock clock;
    SwarmTable table;
    std::vector<std::string> names;
    std::map<std::size_t, std::string> ids;
    std::map<std::size_t, std::vector<std::uint64_t>> got, lost;
    std::map<std::size_t, std::size_t> missing;
    std::map<std::string, int> from;         // pieces by the relay that sent them
    std::map<std::uint64_t, int> of_server;  // how often each piece left the server
    int failures = 0;
};

}  // namespace

TEST_CASE("each piece leaves the server once, and reaches all receivers", "[swarm]") {
    Receivers all(6);
    for (int i = 0; i < 400 && !all.done(); ++i)
        all.turn();
    REQUIRE(all.done());
    CHECK(all.of_server.size() == kPieces);
    CHECK(all.from[""] == static_cast<int>(kPieces));
    int passed_on = 0;
    for (const std::string& name : all.names) {
        CHECK(all.from[name] > 0);
        passed_on += all.from[name];
    }
    CHECK(passed_on == 5 * static_cast<int>(kPieces));
}

TEST_CASE("one receiver gets all from the server, and one that comes later gets nearly all from the first", "[swarm]") {
    Receivers all(2);
    std::vector<std::uint64_t> got;
    for (std::uint64_t i = 0; i < kPieces; ++i) {
        const auto step = all.ask(0, std::exchange(got, {}));
        REQUIRE(step.piece);
        CHECK(step.from.empty());
        got.push_back(*step.piece);
    }
    CHECK(all.ask(0, got).missing == 0);
    CHECK(all.ask(1).unfinished == 0);
    CHECK(all.ask(0).unfinished == 1);
    for (int i = 0; i < 200 && !all.done(); ++i)
        all.turn();
    CHECK(all.from[all.names[0]] >= static_cast<int>(kPieces) - 1);  // the first answer above was not followed
}

TEST_CASE("a file has as many pieces as at first", "[swarm]") {
    Receivers all(1);
    all.ask(0);
    CHECK_FALSE(all.table.next("file", kPieces + 1, {{}, "http://other", {kPieces}, {}}));
    CHECK(all.ask(0).unfinished == 0);
}

TEST_CASE("a relay that fails is left out by the one that it failed, and after two by all", "[swarm]") {
    Receivers all(5);
    const std::string bad = all.names[3];
    for (int i = 0; i < 800 && !all.done(); ++i)
        all.turn({bad});
    REQUIRE(all.done());
    CHECK(all.failures <= 4);
    CHECK(all.failures >= 1);
}

TEST_CASE("nobody is sent to a relay that failed two receivers", "[swarm]") {
    Receivers all(4);
    std::vector<std::uint64_t> everything(kPieces);
    std::iota(everything.begin(), everything.end(), 0);
    all.ask(0, everything);
    for (const std::size_t failed : {1, 2}) {
        const auto step = all.ask(failed);
        CHECK(step.from == all.names[0]);
        CHECK(all.ask(failed, {}, {step.piece.value()}).from.empty());
    }
    const auto step = all.ask(3);
    CHECK(step.piece);
    CHECK(step.from.empty());
}

TEST_CASE("a receiver that falls silent is forgotten, and what it fetched is fetched by others", "[swarm]") {
    Receivers all(3, {.silence = 1s});
    std::set<std::uint64_t> lost;
    for (int i = 0; i < 8; ++i)  // as many as the server sends at once
        lost.insert(all.ask(0).piece.value());
    CHECK_FALSE(all.ask(1).piece);
    all.clock.advance(600ms);
    all.ask(1);
    all.clock.advance(600ms);
    all.table.expire();
    CHECK(all.table.receivers() == 1);
    all.names.erase(all.names.begin());
    all.ids = {{0, all.ids[1]}};
    for (int i = 0; i < 200 && !all.done(); ++i)
        all.turn();
    CHECK(all.done());
    for (const std::uint64_t piece : lost)
        CHECK(all.of_server.contains(piece));
}

TEST_CASE("a receiver that waits for others for long asks the server itself", "[swarm]") {
    Receivers all(2);
    std::set<std::uint64_t> on_the_way;
    for (int i = 0; i < 8; ++i)  // as many as the server sends at once
        on_the_way.insert(all.ask(0).piece.value());
    CHECK_FALSE(all.ask(1).piece);
    std::vector<std::uint64_t> got(on_the_way.begin(), on_the_way.end());
    const auto next = all.ask(1);
    CHECK_FALSE(next.piece);
    all.ask(0, got);
    CHECK(all.ask(1).piece);
}

TEST_CASE("receivers are bounded, and leave", "[swarm]") {
    SwarmTable table({.max_receivers = 2});
    const auto first = table.next("a", 3, {.address = "x"}), second = table.next("b", 3, {.address = "y"});
    REQUIRE((first && second));
    CHECK_FALSE(table.next("a", 3, {.address = "z"}));
    CHECK(table.next("a", 3, {.receiver = first->receiver, .leaves = true}));
    CHECK(table.receivers() == 1);
    CHECK(table.next("a", 3, {.address = "z"}));
    CHECK_FALSE(table.next("a", 3, {.receiver = "unknown", .leaves = true}));
}

TEST_CASE("a receiver is told how many others lack pieces", "[swarm]") {
    Receivers all(4, {.silence = 1s});
    std::vector<std::uint64_t> every(kPieces);
    std::iota(every.begin(), every.end(), std::uint64_t{0});
    for (std::size_t i = 0; i < 4; ++i)
        CHECK(all.ask(i).unfinished == i);
    CHECK(all.ask(1, every).unfinished == 3);
    CHECK(all.ask(1, every).unfinished == 3);
    CHECK(all.ask(0).unfinished == 2);
    CHECK(all.table.next("file", kPieces, {.receiver = all.ids[2], .leaves = true})->unfinished == 2);
    CHECK(all.table.next("file", kPieces, {.receiver = all.ids[1], .leaves = true})->unfinished == 2);
    all.clock.advance(900ms);
    CHECK(all.ask(0).unfinished == 1);
    all.clock.advance(200ms);
    all.table.expire();
    CHECK(all.ask(0).unfinished == 0);
}

TEST_CASE("reports about pieces that do not exist change nothing", "[swarm]") {
    Receivers all(1);
    const auto step = all.ask(0, {kPieces, 1'000'000}, {kPieces});
    CHECK(step.missing == kPieces);
    CHECK(all.ask(0, {5, 5, 5}).missing == kPieces - 1);
}
