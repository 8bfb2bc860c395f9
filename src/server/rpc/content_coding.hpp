#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes/compression.hpp"
#include "net/server/server.hpp"
#include "server/methods/rejected.hpp"

namespace shared_tensor::server {

// Content codings of HTTP (RFC 9110, section 8.4), for requests and responses.

/// The coding of a request's body; `none` without Content-Encoding. Throws Rejected (415) for an unknown coding, and
/// for more than one.
Coding known_coding(const net::Headers& headers);

struct Decoded {
    std::vector<std::byte> bytes;
    std::shared_ptr<const void> share;  ///< reserves the budget for `bytes`; keep it as long as `bytes`
};
/// Decompresses the body of a request. Calls `hold` to reserve budget before more memory is taken; `hold` returns null
/// if the budget is exhausted. Throws Rejected: 413 if the result has more than `most` bytes, 503 if the budget is
/// exhausted, 400 if the body is invalid.
Decoded decoded(const net::Request& request, Coding coding, std::size_t most, CompressionTotals& totals,
                const std::function<std::shared_ptr<const void>(std::size_t bytes)>& hold);

/// Compresses a response with a text body, if the client accepts a coding and the body becomes smaller. A body of more
/// than 8 MiB is compressed while it is sent. In both cases the handler returns `response` afterwards.
void compress_text(const net::RequestHead& head, const CodingOffer& offer, CompressionTotals& totals,
                   net::Response& response, net::ResponseStream& response_stream);

/// Compresses the body of `response` piece by piece and sends each piece at once; blocks until all is sent. The handler
/// returns `response` afterwards: its status is 500 if the body was not sent completely. Returns false, and sends
/// nothing, if the client accepts no coding or the body would not become smaller.
bool send_compressed(const net::RequestHead& head, const CodingOffer& offer, CompressionTotals& totals,
                     net::Response& response, net::ResponseStream& response_stream);

}  // namespace shared_tensor::server
