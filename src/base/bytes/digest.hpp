#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace shared_tensor {

/// XXH3 with 128 bits over bytes that arrive in pieces. It detects accidental damage, not forgery. Not thread-safe.
class Digest {
public:
    using Value = std::array<std::byte, 16>;  ///< big endian, the canonical form of xxHash

    /// Throws std::bad_alloc.
    Digest();
    Digest(const Digest&) = delete;
    Digest& operator=(const Digest&) = delete;
    ~Digest();

    void update(std::span<const std::byte> bytes);
    /// The digest of all bytes so far.
    Value value() const;

    /// The digest of `bytes` alone.
    static Value of(std::span<const std::byte> bytes);

private:
    void* const state_;
};

using Sha256 = std::array<std::byte, 32>;

/// SHA-256 by OpenSSL. Throws std::bad_alloc.
Sha256 sha256_of(std::span<const std::byte> bytes);

}  // namespace shared_tensor
