#include "base/log/last_lines.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/bytes/ids.hpp"

namespace shared_tensor::log {

void LastLines::add(Level level, const Body& body, std::chrono::system_clock::time_point time, SteadyTime now) {
    for (const auto& [its_level, same, left_out] : repeated_.due(now))
        keep(static_cast<Level>(its_level), body_of_repeated(Format::text, same, left_out), time);
    const std::string_view same = std::string_view(body.text).substr(0, body.same);
    if (same.empty() || repeated_.is_new(static_cast<int>(level), same, now)) keep(level, body.text, time);
}

LastLines::Page LastLines::page(std::optional<std::uint64_t> after, std::size_t limit) const {
    const std::uint64_t before = number_ - lines_.size();  // the number before the oldest line
    const std::uint64_t from = std::clamp(after.value_or(number_ - std::min(limit, lines_.size())), before, number_);
    const auto first = lines_.begin() + static_cast<std::ptrdiff_t>(from - before);
    const auto count = std::min<std::uint64_t>(limit, number_ - from);
    return {{first, first + static_cast<std::ptrdiff_t>(count)}, from + count};
}

void LastLines::keep(Level level, std::string text, std::chrono::system_clock::time_point time) {
    if (text.size() > kMaxText) text = std::string(shortened(text, kMaxText));
    bytes_ += text.size();
    lines_.push_back({++number_, time, level, std::move(text)});
    while (lines_.size() > kMaxLines || bytes_ > kMaxBytes) {
        bytes_ -= lines_.front().text.size();
        lines_.pop_front();
    }
}

}  // namespace shared_tensor::log
