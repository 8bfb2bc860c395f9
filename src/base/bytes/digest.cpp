#include "base/bytes/digest.hpp"

#include <openssl/evp.h>

#include <new>

#include "base/bytes/digest_kernel.hpp"

namespace shared_tensor {

namespace {

bool has_avx2() {
#if defined(__x86_64__)
    __builtin_cpu_init();  // needed by code that runs before main()
    return __builtin_cpu_supports("avx2") != 0;
#else
    return false;
#endif
}

const DigestKernel& kernel() { return has_avx2() ? kWideDigest : kKernel; }

unsigned char* bytes_of(Digest::Value& value) { return reinterpret_cast<unsigned char*>(value.data()); }

}  // namespace

Digest::Digest() : state_(kernel().create()) {
    if (state_ == nullptr) throw std::bad_alloc();
}
Digest::~Digest() { kernel().destroy(state_); }

void Digest::update(std::span<const std::byte> bytes) { kernel().update(state_, bytes.data(), bytes.size()); }

Digest::Value Digest::value() const {
    Value value;
    kernel().value(state_, bytes_of(value));
    return value;
}

Digest::Value Digest::of(std::span<const std::byte> bytes) {
    Value value;
    kernel().of(bytes.data(), bytes.size(), bytes_of(value));
    return value;
}

Sha256 sha256_of(std::span<const std::byte> bytes) {
    Sha256 digest;
    auto* out = reinterpret_cast<unsigned char*>(digest.data());
    if (EVP_Digest(bytes.data(), bytes.size(), out, nullptr, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
    return digest;
}

}  // namespace shared_tensor
