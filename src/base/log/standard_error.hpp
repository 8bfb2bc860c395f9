#pragma once

#include <string_view>

namespace shared_tensor {

enum class IfFull {
    wait,  ///< blocks until the reader reads: for a thread that does nothing else
    drop,  ///< does not wait: for any other thread
};

/// Writes to standard error. If the reader has closed the pipe or the disk is full, the text is lost without an error
/// or a signal. A text of at most PIPE_BUF bytes is written in one piece, even if other processes write to the same
/// pipe.
/// Thread safety: any thread; async-signal-safe. False if some of the text was lost.
bool write_to_standard_error(std::string_view text, IfFull if_full) noexcept;

}  // namespace shared_tensor
