#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes/digest.hpp"

// The fields of RFC 9530, with the algorithm "xxh3-128" (not registered); other algorithms are ignored. Content-Digest
// is the digest of the bytes in one message: of a file, or of the part of it in this message.

namespace shared_tensor::net {

/// The value of Want-Content-Digest that asks for this algorithm.
inline constexpr std::string_view kWantDigest = "xxh3-128=5";

/// Whether a Want-Content-Digest field ("sha-256=1, xxh3-128=5") asks for it. Weight 0 means no.
bool wants_digest(std::optional<std::string_view> field);

/// "xxh3-128=:AbCd...==:"
std::string digest_field(const Digest::Value& value);

/// The xxh3-128 digest in a field, if the field has one. A malformed digest has no `value`.
struct DigestField {
    bool is_there = false;
    std::optional<Digest::Value> value{};
};
DigestField parse_digest_field(std::optional<std::string_view> field);

}  // namespace shared_tensor::net
