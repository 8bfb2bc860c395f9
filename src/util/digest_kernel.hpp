#pragma once

#include <cstddef>

namespace shared_tensor {

/// XXH3 as the compiler made it for one kind of processor. `out` has 16 bytes.
struct DigestKernel {
    void* (*create)();  ///< null for want of memory
    void (*destroy)(void* state);
    void (*update)(void* state, const void* data, std::size_t size);
    void (*value)(const void* state, unsigned char* out);
    void (*of)(const void* data, std::size_t size, unsigned char* out);
};

/// For any processor.
extern const DigestKernel kPlainDigest;
/// For those that have AVX2, at twice the speed; where this is no x86-64, as the other.
extern const DigestKernel kWideDigest;

}  // namespace shared_tensor
