#pragma once

#include "options.hpp"

namespace shared_tensor::daemon {

/// Runs `shared-tensor-server doctor`. Starts a server with these options, without functions and on a free port; asks
/// it as a client for the usable transports; checks this host for what they need; prints a report. Returns the exit
/// code: 0 if a server can serve and share memory here, else 1.
int doctor(DaemonOptions options);

}  // namespace shared_tensor::daemon
