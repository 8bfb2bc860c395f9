#pragma once

#include <fcntl.h>

namespace shared_tensor::local {

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // since Linux 5.1; some C libraries are older
#endif

/// The seals of every segment; importers reject a segment without them. It cannot be truncated (readers would get
/// SIGBUS) or punched into zeros. Only its maker can write to it, through the mapping made before the seals. Seals can
/// only be added, so importers do not need F_SEAL_SEAL; without it Segment::seal() can add F_SEAL_WRITE later.
inline constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
/// The seals of a segment that others may write to: it cannot be truncated either. (Holes of whole pages that another
/// process punches read as zeros.) F_SEAL_SEAL keeps processes from adding F_SEAL_FUTURE_WRITE, which would exclude
/// later writers.
inline constexpr int kWritableSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/// Seals that make the bytes immutable. The kernel rejects F_SEAL_WRITE while a writable shared mapping exists.
inline constexpr int kFinalSeals = F_SEAL_WRITE | F_SEAL_SEAL;

}  // namespace shared_tensor::local
