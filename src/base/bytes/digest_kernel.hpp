#pragma once

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

/// For any processor.
extern const DigestKernel kPlainDigest;
/// For processors with AVX2, at twice the speed. Outside x86-64 it is the same code as kPlainDigest.
extern const DigestKernel kWideDigest;

}  // namespace shared_tensor
