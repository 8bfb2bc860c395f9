#pragma once

#include <string_view>

namespace shared_tensor {

enum class IfFull {
    wait,  ///< until somebody reads: for a thread that does nothing else
    drop,  ///< does not wait: for any other thread
};

/// Writes to standard error. A reader that went away or a full disk loses the text, and is neither an error nor a
/// signal. At most PIPE_BUF bytes stay in one piece, also beside other processes on the same pipe.
/// Thread safety: any thread; async-signal-safe. False if something was lost.
bool write_to_standard_error(std::string_view text, IfFull if_full) noexcept;

}  // namespace shared_tensor
