#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.hpp"

namespace shared_tensor::http {

/// A part of a representation, in bytes.
struct ByteRange {
    std::uint64_t first = 0, count = 0;
};

/// What a Range field (RFC 9110, 14.2) asks for of a representation of `size` bytes. Several ranges at once, another
/// unit and what is no range are passed over, as the RFC allows: the whole is sent.
struct RangeWish {
    enum class Kind { whole, part, not_there } kind = Kind::whole;
    ByteRange part{};
};
RangeWish parse_range(std::optional<std::string_view> field, std::uint64_t size);

/// "bytes 0-99/1000", for 206; "bytes */1000", for 416.
std::string content_range(const ByteRange& part, std::uint64_t size);
std::string content_range_of_none(std::uint64_t size);

/// A Content-Range field (RFC 9110, 14.4): "bytes 0-99/1000", "bytes 0-99/*"; "bytes */1000" has a part of 0 bytes.
struct ContentRange {
    ByteRange part{};
    std::optional<std::uint64_t> size{};  ///< of the whole
};
/// None for what is no such field, or a part that does not lie in its whole.
std::optional<ContentRange> parse_content_range(std::string_view field);

/// Whether the entity tag, with its quotes, is one of an If-None-Match or If-Match field: "*" or a list. `weakly`:
/// W/"a" is "a" too.
bool names_etag(std::string_view field, std::string_view etag, bool weakly);

/// That part of a body; nothing is copied.
std::vector<BodyPart> cut(const std::vector<BodyPart>& parts, const ByteRange& part);

}  // namespace shared_tensor::http
