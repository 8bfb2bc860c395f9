#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace shared_tensor {

/// `bytes` random bytes of the kernel as lower-case hexadecimal, e.g. random_hex(16) is 128 bits in 32 characters.
/// Throws std::system_error when the kernel has none to give.
std::string random_hex(std::size_t bytes);

/// A random 128-bit id behind a prefix that tells its kind: "t-" a task, "l-" a lease, "o-" an object, "s-" a session.
std::string random_id(std::string_view prefix);

/// Random ids at a lower cost: asks the kernel for the bits of many at once. Not thread-safe, and not for use on both
/// sides of a fork.
class RandomIds {
public:
    explicit RandomIds(std::string_view prefix) : prefix_(prefix) {}
    /// As random_id(); throws the same.
    std::string next();

private:
    static constexpr std::size_t kBytes = 16, kAtOnce = 16;
    std::string prefix_;
    std::array<std::byte, kBytes * kAtOnce> bits_{};
    std::size_t used_ = kBytes * kAtOnce;
};

/// Compares secrets in a time that depends on the lengths only.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace shared_tensor
