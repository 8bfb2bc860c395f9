#pragma once

#include "options.hpp"

namespace shared_tensor::daemon {

/// `shared-tensor-server doctor`: starts a server with these options, without functions and on a free port, asks it as
/// a client which ways tensors can go, and looks at what they need from this host. Prints a report. The exit code: 0
/// when a server can serve and share memory, else 1.
int doctor(DaemonOptions options);

}  // namespace shared_tensor::daemon
