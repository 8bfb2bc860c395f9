// Compiled for AVX2 where the processor is x86-64 (CMakeLists.txt). It uses no template of the standard library: the
// linker keeps one copy of a template for all files, perhaps the copy for AVX2. The functions of xxHash are static.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>

namespace shared_tensor {

void digest_update_wide(void* state, const void* data, std::size_t size) {
    XXH3_128bits_update(static_cast<XXH3_state_t*>(state), data, size);
}

}  // namespace shared_tensor
