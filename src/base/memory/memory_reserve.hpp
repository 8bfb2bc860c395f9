#pragma once

namespace shared_tensor {

/// Reserves 16 MiB of address space, without using any page, for the moment when memory runs out. The first allocation
/// by `operator new` that fails then frees the reserve and succeeds, so that errors can be sent and GET /healthz
/// answered. Sets the std::new_handler, so it is for programs, not for libraries. Call it once.
void keep_memory_reserve();

/// Whether the reserve exists or could be taken again now; true if no reserve was asked for. While it is false, reject
/// new work that needs memory: the rest is for errors and for work that frees memory. Any thread.
bool has_memory_reserve() noexcept;

}  // namespace shared_tensor
