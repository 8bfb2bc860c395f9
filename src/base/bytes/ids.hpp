#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace shared_tensor {

/// At most `size` bytes of `text`, without cutting a UTF-8 character in two.
std::string_view shortened(std::string_view text, std::size_t size);

/// Two lower-case hexadecimal digits per byte.
void append_hex(std::span<const std::byte> bytes, std::string& text);
std::string hex(std::span<const std::byte> bytes);

/// Formats a UUID (RFC 9562, section 4): groups of 8, 4, 4, 4 and 12 digits.
std::string uuid_text(std::span<const std::byte, 16> bytes);

/// `bytes` random bytes from the kernel as lower-case hexadecimal: random_hex(16) is 128 bits in 32 characters. Throws
/// std::system_error when getrandom() fails.
std::string random_hex(std::size_t bytes);

/// A random 128-bit id after a prefix for its kind: "t-" a task, "l-" a lease, "o-" an object, "s-" a session.
std::string random_id(std::string_view prefix);

/// Random ids at a lower cost: one system call fetches the bits of 16 ids. Not thread-safe. Must not be used on both
/// sides of a fork, which would make the same ids.
class RandomIds {
public:
    explicit RandomIds(std::string_view prefix) : prefix_(prefix) {}
    /// Like random_id(); throws the same.
    std::string next();

private:
    static constexpr std::size_t kBytes = 16, kAtOnce = 16;
    std::string prefix_;
    std::array<std::byte, kBytes * kAtOnce> bits_{};
    std::size_t used_ = kBytes * kAtOnce;
};

/// Ids of `random` random bytes and a count: "1f0a93c2-17". Unique in this process and, but for chance, among all. They
/// are no secrets. Thread-safe. Must not be used on both sides of a fork.
class CountedIds {
public:
    explicit CountedIds(std::size_t random) : prefix_(random_hex(random) + '-') {}
    std::string next();

private:
    const std::string prefix_;
    std::atomic<std::uint64_t> next_{1};
};

/// Compares secrets in a time that depends only on their lengths.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace shared_tensor
