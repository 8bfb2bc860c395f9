#pragma once

#include <functional>
#include <vector>

#include "runtime/batches/batch_queue.hpp"
#include "runtime/functions/function_table.hpp"

namespace shared_tensor::runtime {

/// Runs calls that a worker took, as one run if they are several, and gives each its rows of the result. If the joined
/// run fails, each call runs alone. Calls that were cancelled take no part. `abandoned` is called when nobody waits for
/// the function that runs; it must not throw.
void run_batch(const FunctionTable::Entry& function, std::vector<WaitingCallPointer> calls,
               const detail::CallMemory* memory, const std::function<void()>& abandoned) noexcept;

}  // namespace shared_tensor::runtime
