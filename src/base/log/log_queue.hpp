#pragma once

#include <chrono>
#include <string_view>

#include "base/log/log.hpp"

namespace shared_tensor::log {

/// Queues a line for the thread st-log, which writes it to standard error. The first line starts that thread. Never
/// blocks: while standard error is not read, the last kMaxWaiting lines are kept; older lines are counted and dropped.
/// If no thread can be started, the calling thread writes the line if that does not block.
/// Thread safety: any thread, also in a forked child, which starts a thread of its own.
void post(Level level, std::string_view text) noexcept;
constexpr std::size_t kMaxWaiting = 1024;

/// Blocks until the lines queued so far are written, at most for `bound`. Also writes the counts of repeated lines. For
/// the end of a process: lines that are still queued then are lost. False if the time was too short.
bool flush(std::chrono::milliseconds bound) noexcept;

}  // namespace shared_tensor::log
