#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace shared_tensor::test {

/// Ends a fuzzer whose property does not hold.
inline void require(bool holds, const char* property) {
    if (holds) return;
    std::cerr << "does not hold: " << property << '\n';
    std::abort();
}

}  // namespace shared_tensor::test
