#pragma once

#include <fcntl.h>

namespace shared_tensor::shm {

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // of Linux 5.1, younger than some C libraries
#endif

/// What every segment has, and every importer insists on: it cannot be cut (SIGBUS in whoever reads it), punched into
/// zeros, or written by anybody but its maker through the mapping that was there before. Seals can be added only, so
/// F_SEAL_SEAL would give an importer nothing, and without it Segment::seal() can add F_SEAL_WRITE later.
inline constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
/// One that others may write to as well cannot be cut either. (Holes of whole pages that another punches read as
/// zeros.) Nobody can add F_SEAL_FUTURE_WRITE, which would shut out those who map it next.
inline constexpr int kWritableSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/// What is added when the bytes are to stay as they are. The kernel refuses F_SEAL_WRITE while anybody has a mapping to
/// write through.
inline constexpr int kFinalSeals = F_SEAL_WRITE | F_SEAL_SEAL;

}  // namespace shared_tensor::shm
