#pragma once

#include "util/background.hpp"

namespace shared_tensor {

/// For work that nobody waits for: one thread of the process, never destroyed, since the last owner of
/// what it ends may be its own work. A forked process has none of its parent's threads, so it gets one of its own.
Background& closer();

/// The same for what asks a server, which may take its time.
Background& messenger();

}  // namespace shared_tensor
