#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/concurrency/clock.hpp"
#include "base/log/log.hpp"
#include "base/log/log_text.hpp"
#include "base/log/repeated_lines.hpp"

namespace shared_tensor::log {

/// A line of the log that is kept in memory.
struct KeptLine {
    std::uint64_t number;  ///< the first line has 1; one more for each later line
    std::chrono::system_clock::time_point time;
    Level level;
    std::string text;  ///< as in the text form, behind the level: message, fields, details
};

/// The last lines of a log, in the text form. Equal lines within RepeatedLines::kWindow are kept once and counted. The
/// oldest lines make room for newer ones.
/// Not thread-safe.
class LastLines {
public:
    static constexpr std::size_t kMaxLines = 1000;
    static constexpr std::size_t kMaxBytes = std::size_t{256} << 10;  ///< of the texts
    static constexpr std::size_t kMaxText = std::size_t{4} << 10;     ///< bytes of one text; the rest is cut

    struct Page {
        std::vector<KeptLine> lines;  ///< the oldest first
        std::uint64_t next;           ///< the number after which later lines come
    };

    /// `body`: in the text form.
    void add(Level level, const Body& body, std::chrono::system_clock::time_point time, SteadyTime now);
    /// The first `limit` lines whose number is larger than `after`. Without `after`: the last `limit` lines.
    Page page(std::optional<std::uint64_t> after, std::size_t limit) const;

private:
    void keep(Level level, std::string text, std::chrono::system_clock::time_point time);

    std::deque<KeptLine> lines_;
    std::size_t bytes_ = 0;     // of the texts in lines_
    std::uint64_t number_ = 0;  // of the newest line
    RepeatedLines repeated_;
};

/// The last lines that this process wrote to its log. Thread safety: any thread.
LastLines::Page last_lines(std::optional<std::uint64_t> after, std::size_t limit);

}  // namespace shared_tensor::log
