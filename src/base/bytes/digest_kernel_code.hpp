#pragma once

// Included by one file for each kind of processor, which is compiled with flags of its own. It uses no template of the
// standard library: the linker keeps one copy of a template for all files, perhaps one for the wrong processor.

#define XXH_INLINE_ALL  // headers only: nothing to link
#include <xxhash.h>

#include "base/bytes/digest_kernel.hpp"

namespace shared_tensor {
namespace {

// NOLINTBEGIN(misc-definitions-in-headers): each file that includes this one needs its own copy

void write(XXH128_hash_t hash, unsigned char* out) {
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hash);
    for (unsigned i = 0; i < sizeof bytes.digest; ++i)
        out[i] = bytes.digest[i];
}

XXH3_state_t* as_state(void* state) { return static_cast<XXH3_state_t*>(state); }

void* create() {
    XXH3_state_t* state = XXH3_createState();
    if (state != nullptr) XXH3_128bits_reset(state);
    return state;
}
void destroy(void* state) { XXH3_freeState(as_state(state)); }
void update(void* state, const void* data, std::size_t size) { XXH3_128bits_update(as_state(state), data, size); }
void value(const void* state, unsigned char* out) {
    write(XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state)), out);
}
void of(const void* data, std::size_t size, unsigned char* out) { write(XXH3_128bits(data, size), out); }

constexpr DigestKernel kKernel{&create, &destroy, &update, &value, &of};

// NOLINTEND(misc-definitions-in-headers)

}  // namespace
}  // namespace shared_tensor
