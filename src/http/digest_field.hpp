#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "util/digest.hpp"

// The fields of RFC 9530, with the one algorithm that is used here, "xxh3-128" (not registered; others are passed
// over). Content-Digest is of the bytes in one message: a file, or the part of it that the message carries.

namespace shared_tensor::http {

/// The value of Want-Content-Digest that asks for it.
inline constexpr std::string_view kWantDigest = "xxh3-128=5";

/// Of a Want-Content-Digest field: "sha-256=1, xxh3-128=5"; 0 is no.
bool wants_digest(std::optional<std::string_view> field);

/// "xxh3-128=:AbCd...==:"
std::string digest_field(const Digest::Value& value);

/// That of the algorithm in a field. `field` holds it or not; `value` is none too where it is malformed.
struct DigestField {
    bool is_there = false;
    std::optional<Digest::Value> value{};
};
DigestField parse_digest_field(std::optional<std::string_view> field);

}  // namespace shared_tensor::http
