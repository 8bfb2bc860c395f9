#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes/digest.hpp"
#include "net/message/message.hpp"

// Header fields of byte ranges, entity tags, media types, digests and traces. Pure functions.

namespace shared_tensor::net {

/// A part of a representation, in bytes.
struct ByteRange {
    std::uint64_t first = 0, count = 0;
};

/// The request of a Range field (RFC 9110, 14.2) for a representation of `size` bytes. Several ranges, another unit and
/// a malformed field are ignored, as the RFC permits: the whole is sent.
struct RangeRequest {
    enum class Kind { whole, part, not_there } kind = Kind::whole;
    ByteRange part{};
};
RangeRequest parse_range(std::optional<std::string_view> field, std::uint64_t size);

/// "bytes 0-99/1000", for 206; "bytes */1000", for 416.
std::string content_range(const ByteRange& part, std::uint64_t size);
std::string content_range_of_none(std::uint64_t size);

/// A Content-Range field (RFC 9110, 14.4): "bytes 0-99/1000", "bytes 0-99/*". The part of "bytes */1000" has 0 bytes.
struct ContentRange {
    ByteRange part{};
    std::optional<std::uint64_t> size{};  ///< of the whole
};
/// Nullopt for a malformed field, and for a part that is not inside the whole.
std::optional<ContentRange> parse_content_range(std::string_view field);

/// Whether an If-None-Match or If-Match field ("*" or a list) contains the entity tag. `etag` includes its quotes.
/// `weakly`: W/"a" equals "a".
bool names_etag(std::string_view field, std::string_view etag, bool weakly);

/// The first media type in Accept that is one of `types`; empty if there is none. Ignores those with weight 0 (q=0).
std::string_view first_accepted(const Headers& headers, std::initializer_list<std::string_view> types);

/// The name of a request in logs and in its answer. A client may choose it.
inline constexpr const char* kRequestId = "X-Request-Id";
/// Whether a client may name a request so: 1 to 128 visible ASCII characters, but neither quotes nor backslashes.
bool is_request_id(std::string_view text);

/// Whether it is a traceparent of version 00 (W3C Trace Context, section 3.2).
bool is_traceparent(std::string_view text);

/// That part of a body. Copies nothing.
std::vector<BodyPart> cut(const std::vector<BodyPart>& parts, const ByteRange& part);

// The fields of RFC 9530, with the algorithm "xxh3-128" (not registered); other algorithms are ignored. Content-Digest
// is the digest of the bytes in one message: of a file, or of the part of it in this message.

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
