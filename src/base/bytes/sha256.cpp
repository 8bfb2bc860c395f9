#include "base/bytes/sha256.hpp"

#include <openssl/evp.h>

#include <new>

namespace shared_tensor {

Sha256 sha256_of(std::span<const std::byte> bytes) {
    Sha256 digest;
    auto* out = reinterpret_cast<unsigned char*>(digest.data());
    if (EVP_Digest(bytes.data(), bytes.size(), out, nullptr, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
    return digest;
}

}  // namespace shared_tensor
