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

/// SHA-256, by OpenSSL, over bytes that arrive in pieces. Not thread-safe.
class Sha256 {
public:
    using Value = std::array<std::byte, 32>;

    /// Throws std::bad_alloc, like the other methods.
    Sha256();
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;
    ~Sha256();

    void update(std::span<const std::byte> bytes);
    /// The digest of all bytes. Call it once, at the end.
    Value value();

    /// The digest of `bytes` alone.
    static Value of(std::span<const std::byte> bytes);

private:
    void* const state_;
};

}  // namespace shared_tensor
