#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace shared_tensor {

/// Calls `work(i)` for each i below `count`, on `threads` threads, including the calling thread, or on fewer if the
/// system starts no more. Blocks until all have returned. After an exception no more work begins, and the first
/// exception is rethrown.
void in_parallel(std::size_t threads, std::uint64_t count, const std::function<void(std::uint64_t i)>& work);

}  // namespace shared_tensor
