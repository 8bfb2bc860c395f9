// The lines that the log keeps in memory, and how it finds equal ones.

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "base/concurrency/clock.hpp"
#include "base/log/current_call.hpp"
#include "base/log/last_lines.hpp"
#include "base/log/log.hpp"
#include "base/log/repeated_lines.hpp"

using namespace shared_tensor;
using namespace std::chrono_literals;
using log::LastLines;
using log::RepeatedLines;

namespace {

constexpr int kWarn = 3, kError = 4;

SteadyTime after(std::chrono::milliseconds time) { return SteadyTime(std::chrono::hours(1)) + time; }

}  // namespace

TEST_CASE("an equal line within the window is counted, the next one after it is new", "[util][log]") {
    RepeatedLines lines;
    CHECK(lines.is_new(kWarn, "x", after(0ms)));
    CHECK(lines.is_new(kWarn, "y", after(0ms)));
    CHECK(lines.is_new(kError, "x", after(0ms)));
    CHECK_FALSE(lines.is_new(kWarn, "x", after(1ms)));
    CHECK_FALSE(lines.is_new(kWarn, "x", after(9s)));
    CHECK(lines.due(after(9'999ms)).empty());

    const auto counts = lines.due(after(10s));
    REQUIRE(counts.size() == 1);
    CHECK(counts[0].level == kWarn);
    CHECK(counts[0].text == "x");
    CHECK(counts[0].left_out == 2);
    CHECK(lines.due(after(20s)).empty());
    CHECK(lines.is_new(kWarn, "x", after(10s)));
}

TEST_CASE("any number of texts is known in a bounded space: the oldest gives its count and goes", "[util][log]") {
    RepeatedLines lines;
    CHECK(lines.is_new(kWarn, "first", after(0ms)));
    CHECK_FALSE(lines.is_new(kWarn, "first", after(0ms)));
    std::size_t counted = 0;
    for (int i = 0; i < 1'000; ++i) {
        counted += lines.due(after(0ms)).size();
        CHECK(lines.is_new(kWarn, std::to_string(i), after(0ms)));
    }
    CHECK(counted == 1);
    CHECK(lines.all().empty());  // a line that came once has no count
}

namespace {

/// Adds a line that folds, or one that never does.
void add(LastLines& lines, const std::string& text, SteadyTime now = after(0ms), bool folds = false) {
    lines.add(log::Level::warn, {text, folds ? text.size() : 0}, {}, now);
}

std::vector<std::string> texts_of(const LastLines::Page& page) {
    std::vector<std::string> texts;
    for (const log::KeptLine& line : page.lines)
        texts.push_back(line.text);
    return texts;
}

}  // namespace

TEST_CASE("the last lines are limited in number and in bytes: the oldest go first", "[util][log]") {
    LastLines many;
    for (std::size_t i = 0; i < LastLines::kMaxLines + 5; ++i)
        add(many, std::to_string(i));
    const auto all = many.page(0, 10'000);
    CHECK(all.lines.size() == LastLines::kMaxLines);
    CHECK(all.lines.front().number == 6);
    CHECK(all.lines.front().text == "5");
    CHECK(all.next == LastLines::kMaxLines + 5);

    LastLines large;
    for (int i = 0; i < 100; ++i)
        add(large, std::string(2 * LastLines::kMaxText, 'x'));
    const auto kept = large.page(0, 10'000);
    CHECK(kept.lines.size() == LastLines::kMaxBytes / LastLines::kMaxText);
    CHECK(kept.lines.front().text.size() == LastLines::kMaxText);
    CHECK(kept.next == 100);
}

TEST_CASE("of equal lines the last lines have the first, and later the number of the others", "[util][log]") {
    LastLines lines;
    for (int i = 0; i < 4; ++i)
        add(lines, "again", after(0ms), true);
    add(lines, "other", after(1s), true);
    CHECK(texts_of(lines.page(0, 10)) == std::vector<std::string>{"again", "other"});
    add(lines, "later", after(10s), true);
    const std::string count = "(3 more times within 10 s) again";
    CHECK(texts_of(lines.page(0, 10)) == std::vector<std::string>{"again", "other", count, "later"});
}

TEST_CASE("the last lines of this process have the text form, with the fields of the call", "[util][log]") {
    const std::uint64_t before = log::last_lines({}, 1).next;
    const log::Format format = log::format();
    const CurrentCall call{"print", "uid:1000", {}, {}, {}, {}};
    {
        const InCall in_call(call);
        log::set_format(log::Format::json);
        log::warn("the paper is \n low");
        log::set_format(format);
        log::debug("not at this level");
    }
    const auto page = log::last_lines(before, 10);  // before the line, counts of earlier lines may come
    REQUIRE(!page.lines.empty());
    CHECK(page.lines.back().level == log::Level::warn);
    CHECK(page.lines.back().text == "the paper is   low function=print principal=uid:1000");
    CHECK(std::chrono::system_clock::now() - page.lines.back().time < 1h);
    CHECK(page.next == page.lines.back().number);
}
