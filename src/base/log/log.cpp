#include "base/log/log.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/log/current_call.hpp"
#include "base/log/last_lines.hpp"
#include "base/log/line_queue.hpp"
#include "base/log/log_text.hpp"
#include "base/log/repeated_lines.hpp"
#include "base/log/standard_error.hpp"
#include "base/system/fork.hpp"

namespace shared_tensor::log {

namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace", "debug", "info", "warn", "error", "off"};

constinit std::atomic<Level> threshold{Level::info};
constinit std::atomic<Format> chosen_format{Format::text};

constexpr std::chrono::milliseconds kFlushAtExit{1'000};

std::string line_now(Level level, std::string_view body) {
    return whole_line(format(), level, body, std::chrono::system_clock::now());
}

class StandardErrorSink final : public LineSink {
public:
    /// `dropped` returns how many lines the full queue has dropped so far.
    void count_dropped_by(std::function<std::size_t()> dropped) { dropped_ = std::move(dropped); }

    /// The mark of a line is Body::same.
    void write(const QueuedLine& line) override {
        say_dropped();
        const SteadyTime now = real_clock().now();
        say_repeated(repeated_.due(now));
        const std::string_view same = line.text.substr(0, static_cast<std::size_t>(line.mark));
        if (same.empty() || repeated_.is_new(line.level, same, now))
            put(whole_line(format(), static_cast<Level>(line.level), line.text, line.time));
    }
    void finish() override {
        say_dropped();
        say_repeated(repeated_.all());
    }

private:
    static void put(const std::string& line) { write_to_standard_error(line, IfFull::wait); }

    void say_dropped() {
        const std::size_t dropped = dropped_();
        if (dropped == said_dropped_) return;
        const std::string text =
            std::to_string(dropped - said_dropped_) + " log lines were dropped: standard error was not read";
        put(line_now(Level::warn, body_of(format(), {Level::warn, text}, nullptr).text));
        said_dropped_ = dropped;
    }
    static void say_repeated(const std::vector<RepeatedLines::Count>& counts) {
        for (const auto& [level, same, left_out] : counts)
            put(line_now(static_cast<Level>(level), body_of_repeated(format(), same, left_out)));
    }

    std::function<std::size_t()> dropped_;
    std::size_t said_dropped_ = 0;
    RepeatedLines repeated_;
};

/// The log of one process: the queue for standard error, and the last lines in memory.
struct Queue {
    Queue() {
        sink->count_dropped_by([this] { return lines.dropped(); });
    }

    const std::shared_ptr<StandardErrorSink> sink = std::make_shared<StandardErrorSink>();
    LineQueue lines{sink, "st-log", kMaxWaiting};
    Guarded<LastLines> last;
};

/// Never destroyed: the destructor would wait for a thread that may be blocked forever.
constinit NeverDestroyed<OfThisProcess<Queue>> current;

Queue& queue() {
    return current.value.get([] {
        static const int kFlushes = std::atexit([] { flush(kFlushAtExit); });
        static_cast<void>(kFlushes);
        return std::make_unique<Queue>();
    });
}

/// Keeps the line in memory, in the text form. `body`: the line in the form of the log.
void keep(Queue& queue, const Entry& entry, const Body& body) {
    const auto time = std::chrono::system_clock::now();
    const auto now = real_clock().now();
    if (format() == Format::text) return queue.last.lock()->add(entry.level, body, time, now);
    const Body text = body_of(Format::text, entry, current_call);
    queue.last.lock()->add(entry.level, text, time, now);
}

/// The place of `name` in `names`. Throws std::invalid_argument.
template <class Names>
std::size_t place_of(std::string_view name, const Names& names, const char* what, const char* choices) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    throw std::invalid_argument(std::string("unknown ") + what + " \"" + std::string(name) + "\": use " + choices);
}

}  // namespace

void set_level(Level level) { threshold.store(level, std::memory_order_relaxed); }
Level level() { return threshold.load(std::memory_order_relaxed); }

std::string_view name_of(Level level) { return kNames[static_cast<std::size_t>(level)]; }

Level parse_level(std::string_view name) {
    return static_cast<Level>(place_of(name, kNames, "log level", "trace, debug, info, warn, error or off"));
}

void set_format(Format format) { chosen_format.store(format, std::memory_order_relaxed); }
Format format() { return chosen_format.load(std::memory_order_relaxed); }

Format parse_format(std::string_view name) {
    constexpr std::array<std::string_view, 2> kFormats = {"text", "json"};
    return static_cast<Format>(place_of(name, kFormats, "log format", "text or json"));
}

void write(const Entry& entry) noexcept {
    if (!enabled(entry.level)) return;
    try {
        const Body body = body_of(format(), entry, current_call);
        try {
            queue().lines.write(static_cast<int>(entry.level), static_cast<int>(body.same), body.text);
        } catch (const std::exception&) {  // no thread
            write_to_standard_error(line_now(entry.level, body.text), IfFull::drop);
        }
        if (Queue* const found = current.value.find()) keep(*found, entry, body);
    } catch (const std::exception&) {
        // There is no memory for the line.
    }
}

LastLines::Page last_lines(std::optional<std::uint64_t> after, std::size_t limit) {
    Queue* const found = current.value.find();
    return found != nullptr ? found->last.lock()->page(after, limit) : LastLines::Page{};
}

bool flush(std::chrono::milliseconds bound) noexcept {
    Queue* const found = current.value.find();
    if (found == nullptr) return true;
    try {
        return found->lines.flush(bound);
    } catch (const std::exception&) {
        return false;
    }
}

}  // namespace shared_tensor::log
