#pragma once

#include <string>
#include <string_view>

namespace shared_tensor {

/// `bytes` random bytes of the kernel as lower-case hexadecimal, e.g. random_hex(16) is 128 bits in 32 characters.
/// Throws std::system_error when the kernel has none to give.
std::string random_hex(std::size_t bytes);

/// A random 128-bit id behind a prefix that tells its kind: "t-" a task, "l-" a lease, "o-" an object, "s-" a session.
std::string random_id(std::string_view prefix);

/// Compares secrets in a time that depends on the lengths only.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace shared_tensor
