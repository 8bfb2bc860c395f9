#pragma once

namespace shared_tensor {

/// From here this process keeps some address space (16 MiB, no page of it in use) for the moment when there is none
/// left: the first allocation by `operator new` that fails gives it up and goes on, so that errors can be told and
/// GET /healthz answered. Sets the std::new_handler: for a program, not for a library. Once.
void keep_memory_reserve();

/// Whether the reserve is there, or could be taken again just now; true where none is kept. Until then what takes more
/// memory should be refused, since what is left is for errors and for what frees memory. Any thread.
bool has_memory_reserve() noexcept;

}  // namespace shared_tensor
