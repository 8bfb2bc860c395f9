#pragma once

// Included by digest.cpp for any processor, and by digest_wide.cpp, which is compiled with flags of its own. It uses no
// template of the standard library: the linker keeps one copy of a template for all files, perhaps the wide one.

#define XXH_INLINE_ALL  // headers only: nothing to link
#include <xxhash.h>

#include <cstddef>

namespace shared_tensor {

/// XXH3 as compiled for one kind of processor. `out` has 16 bytes.
struct DigestKernel {
    void* (*create)();  ///< returns null if there is no memory
    void (*destroy)(void* state);
    void (*update)(void* state, const void* data, std::size_t size);
    void (*value)(const void* state, unsigned char* out);
    void (*of)(const void* data, std::size_t size, unsigned char* out);
};

/// The code of digest_wide.cpp: for processors with AVX2, at twice the speed. Outside x86-64 it is the same code.
extern const DigestKernel kWideDigest;

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
