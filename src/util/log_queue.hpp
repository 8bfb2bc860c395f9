#pragma once

#include <chrono>
#include <string_view>

#include "util/log.hpp"

namespace shared_tensor::log {

/// Hands a line to the thread st-log, which writes it to standard error; starts that thread with the first line.
/// Never blocks: while nobody reads standard error the last kMaxWaiting lines are kept, and older ones are counted and
/// dropped. Without a thread (none can be started) the line is written here if that does not block.
/// Thread safety: any thread, also in a forked child, which starts a thread of its own.
void post(Level level, std::string_view text) noexcept;
constexpr std::size_t kMaxWaiting = 1024;

/// Waits until the lines of before were written, `bound` at most; counts of repeated lines are written now.
/// For the end of a process: lines that still wait then are lost. False if time was not enough.
bool flush(std::chrono::milliseconds bound) noexcept;

}  // namespace shared_tensor::log
