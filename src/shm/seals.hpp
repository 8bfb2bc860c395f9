#pragma once

#include <fcntl.h>

namespace shared_tensor::shm {

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // of Linux 5.1, younger than some C libraries
#endif

/// What every segment has, and every importer insists on: it cannot be cut (SIGBUS in whoever reads it), punched into
/// zeros, or written by anybody but its maker through the mapping that was there before.
inline constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
/// One that others may write to as well cannot be cut either. (Holes of whole pages that another punches read as
/// zeros.)
inline constexpr int kWritableSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace shared_tensor::shm
